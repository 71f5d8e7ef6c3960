// One table of two numbers and their difference, line by line.
import type { ComponentChildren } from 'preact';
import { explained } from '../kit/explained';
import { Figure } from '../kit/figure';
import { number, signed } from '../numbers';

export type Line = readonly [unknown, number | null, number | null];
interface DiffProps {
  title: ComponentChildren;
  name: string;
  /** What its numbers are called in the glossary; nothing: each line by its own name. */
  of: string;
  lines: readonly Line[];
  /** Before and after a change, instead of two prompts: then the difference is the second number less the first. */
  changed?: boolean;
  onPick?: (line: Line) => void;
}

export const Diff = ({ title, name, of, lines, changed = false, onPick }: DiffProps) => (
  <Figure>
    <figcaption>
      <b>{title}</b>
    </figcaption>
    <div class="scroll" tabIndex={0} role="group" aria-label={name}>
      <table class="beforeafter diff">
        <thead>
          <tr>
            <th scope="col">{name}</th>
            {[changed ? 'as it is' : 'here', changed ? 'changed' : 'there'].map((one) => (
              <th scope="col" class="n" {...(of ? explained(of) : {})}>
                {one}
              </th>
            ))}
            <th scope="col" class="n" {...explained(changed ? 'difference' : 'here less there')}>
              difference
            </th>
          </tr>
        </thead>
        <tbody>
          {lines.map((line) => (
            <tr>
              <th scope="row">
                {onPick ? (
                  <button type="button" class="small" onClick={() => onPick(line)}>
                    {String(line[0])}
                  </button>
                ) : (
                  (line[0] as ComponentChildren)
                )}
              </th>
              {[line[1], line[2]].map((v) => (
                <td class="n" {...explained(of || String(line[0]), { v }, of === '')}>
                  {number(v)}
                </td>
              ))}
              <td class="n">{line[1] === null || line[2] === null ? '–' : signed(changed ? line[2] - line[1] : line[1] - line[2], 3)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  </Figure>
);
