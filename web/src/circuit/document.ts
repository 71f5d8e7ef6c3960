// A circuit file's document (docs: The circuit file).
import type { Glossary } from '../kit/explained';
import type { KnownNames } from '../kit/names';

export type NodeKind = 'head' | 'mlp' | 'embedding' | 'bias' | 'offset' | 'answer';
export type Side = 'query' | 'key';
export type EdgeKind = 'causal' | 'account';
export type Unit = 'attention' | 'answer';

export interface CircuitNode {
  id: string;
  kind: NodeKind;
  layer: number;
  head: number | null;
  query: number;
  key: number;
  attention: number | null;
  /** What names are about it. */
  names?: readonly string[];
}

export interface CircuitEdge {
  source: string;
  target: string;
  side: Side;
  weight: number | null;
  channels: readonly number[];
  kind?: EdgeKind;
  /** What the weight of an account is a part of. */
  unit?: Unit;
  /** Of a family's circuits, how many hold it. */
  share?: number;
  names?: readonly string[];
}

/** The circuits of many prompts as one: nodes without tokens. */
export interface FamilyNote {
  name: string;
  task: string;
  circuits: number;
  of: number;
  pruned: number;
  all_edges: number;
}

export interface CircuitDocument {
  glossary?: Glossary;
  kind: 'headwise-circuit';
  model: { name: string };
  prompt: string | null;
  tokens: readonly string[];
  answer: string | null;
  answer_id?: number | null;
  wrong: string | null;
  difference?: number | null;
  top?: string | null;
  mode: string;
  basis?: { kind: string };
  family?: FamilyNote;
  nodes: readonly CircuitNode[];
  edges: readonly CircuitEdge[];
  names?: KnownNames | null;
  notes: readonly string[];
  counterfactuals?: readonly { target: string; side: string; attention: number; predicted: number }[];
}
