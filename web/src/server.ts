// The app, and its host: the only file that asks a network, and it asks its own origin alone.
import { inside } from 'headwise:inside';
import { h, render } from 'preact';
import { AppPage } from './app/app';
import type { Later, Server, Told } from './host';
import { Refused } from './host';
import type { Refusal } from './app/wire';

const SCREENS = '/assets/screens.js';
const KINDS = ['part', 'done', 'failed', 'cancelled', 'model', 'jobs', 'runs'] as const;

const GONE = 'The app does not answer: it was stopped, or is being started.';

const tab = [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16).padStart(2, '0')).join('');

const asked = async (method: string, path: string, body?: unknown): Promise<Response> => {
  let got: Response;
  try {
    got = await fetch(path, {
      method,
      credentials: 'same-origin',
      ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    });
  } catch {
    throw new Refused(GONE, null, null, 0);
  }
  if (got.ok) return got;
  const said = (await got.json().catch(() => ({}))) as Partial<Refusal>;
  throw new Refused(said.error ?? `the app answered ${got.status}`, said.hint ?? null, said.where ?? null, got.status, said.choices);
};

// One stream for the tab: a browser opens no more than six connections to a host.
const hearers = new Set<(told: Told) => void>();
const states = new Set<(there: boolean) => void>();
let source: EventSource | null = null;
const listen = (hear: (told: Told) => void, state: (there: boolean) => void = () => undefined) => {
  hearers.add(hear);
  states.add(state);
  if (!source) {
    source = new EventSource(`/api/events?tab=${tab}`);
    for (const kind of KINDS)
      source.addEventListener(kind, (event) => {
        const data: unknown = JSON.parse((event as MessageEvent<string>).data);
        for (const one of hearers) one({ kind, data });
      });
    const tell = (there: boolean) => () => states.forEach((one) => one(there));
    source.addEventListener('open', tell(true));
    source.addEventListener('error', tell(false));
  }
  return () => {
    hearers.delete(hear);
    states.delete(state);
  };
};

const kept = (content: Blob, name: string) => {
  const url = URL.createObjectURL(content);
  const link = document.createElement('a');
  link.setAttribute('href', url);
  link.setAttribute('download', name);
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
};

const server: Server = {
  tab,
  get: async (path) => (await asked('GET', path)).json(),
  post: async (path, body) => (await asked('POST', path, body)).json(),
  remove: async (path) => (await asked('DELETE', path)).json(),
  cancel: (job) => void asked('DELETE', `/api/jobs/${job}`).catch(() => undefined),
  bytes: async (path) => {
    const got = await asked('GET', path);
    return { shape: (got.headers.get('x-shape') ?? '').split(',').map(Number), data: new Uint8Array(await got.arrayBuffer()) };
  },
  listen,
  address: {
    read: () => location.pathname + location.search,
    go: (url, how) => (how === 'push' ? history.pushState(null, '', url) : history.replaceState(null, '', url)),
    listen: (hear) => {
      addEventListener('popstate', hear);
      return () => removeEventListener('popstate', hear);
    },
    whole: (url) => location.origin + url,
  },
  screens: async () => {
    try {
      return ((await import(SCREENS)) as { screens: Later }).screens;
    } catch {
      throw new Refused(GONE, null, null, 0);
    }
  },
  copy: (text) => navigator.clipboard.writeText(text),
  save: async (path, name) => kept(await (await asked('GET', path)).blob(), name),
  keep: (text, name) => kept(new Blob([text], { type: 'text/html' }), name),
};

// What the screens' script takes from this one.
headwise.inside.push(...inside);
const place = document.getElementById('headwise');
if (place) render(h(AppPage, { server }), place);
