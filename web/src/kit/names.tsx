// Names that were tested on other texts: never one without its verdict, its accuracy and its evidence.
import { number } from '../numbers';
import { isolated, readable } from '../text';

export interface KnownName {
  level: string;
  /** Null where the verdict grants no name. */
  text: string | null;
  verdict: string;
  accuracy: { mean: number; low: number; high: number } | null;
  flags: readonly string[];
  by: string;
  /** In the folder of the run. */
  evidence: string;
}
export interface KnownNames {
  run: string | null;
  corpus: string;
  other_basis: number;
  signals: Readonly<Record<string, KnownName>>;
  /** The folder's address from this page on, where there is one. */
  link?: string | null;
}

/** A name with its test, in one line of plain text. */
export const nameText = (name: KnownName): string => {
  const accuracy = name.accuracy ? `, accuracy ${number(name.accuracy.mean, 2)}` : '';
  return name.text === null ? name.verdict : `“${isolated(readable(name.text))}” (${name.verdict}${accuracy})`;
};

/** Of some subjects the first that has words, or else the first. */
export const bestOf = (names: KnownNames, signals: readonly string[] = []): string => signals.find((one) => names.signals[one]?.text) ?? signals[0] ?? '';

/** The names of some subjects, each with its test, as lines of a tooltip. */
export const nameLines = (names: KnownNames | null | undefined, signals: readonly string[] = []): string[] =>
  signals.flatMap((signal) => {
    const name = names?.signals[signal];
    return name ? [`${signal}: ${nameText(name)}`] : [];
  });

const STATES: Record<string, string> = { named: 'good', 'beyond chance': 'mixed' };

/** An address that leads to a file and to nothing else: no scheme but that of files, no other machine. */
const ofFiles = (link: string): boolean => (/^file:\/\/\/(?!\/)/.test(link) || /^(?!\/\/)[^:]*$/.test(link)) && !/[\\\s]/.test(link);

/** Where the evidence is: a link where the page knows the way, else the place in words. */
const Evidence = ({ names, name }: { names: KnownNames; name: KnownName }) => {
  if (names.run === null) return <span class="soft">not saved</span>;
  const place = `${names.run}/${name.evidence}`;
  const link = `${names.link}/${name.evidence}`;
  return names.link && ofFiles(link) ? (
    <a href={link} title={place}>
      evidence
    </a>
  ) : (
    <code class="soft">{place}</code>
  );
};

/** A name as it stands beside what it names. */
export const Named = ({ names, signal }: { names: KnownNames | null | undefined; signal: string }) => {
  const name = names?.signals[signal];
  if (!names || !name) return null;
  return (
    <span class="known-name">
      {name.text === null ? null : <q>{isolated(readable(name.text))}</q>} <span class={`chip ${STATES[name.verdict] ?? 'unknown'}`}>{name.verdict}</span>
      {name.accuracy ? ` ${number(name.accuracy.mean, 2)} ` : ' '}
      <Evidence names={names} name={name} />
    </span>
  );
};

/** All names of a page as a table. */
export const NamesTable = ({ names }: { names: KnownNames }) => {
  const found = Object.entries(names.signals).sort(([, a], [, b]) => Number(a.text === null) - Number(b.text === null));
  return (
    <>
      {found.length ? (
        <div class="scroll names" tabIndex={0} role="group" aria-label="Names">
          <table>
            <thead>
              <tr>
                <th scope="col">what</th>
                <th scope="col">name</th>
                <th scope="col">verdict</th>
                <th scope="col" class="n">
                  accuracy (95 %)
                </th>
                <th scope="col">evidence</th>
              </tr>
            </thead>
            <tbody>
              {found.map(([signal, name]) => (
                <tr key={signal}>
                  <td>{isolated(readable(signal))}</td>
                  <td>
                    {name.text === null ? '–' : isolated(readable(name.text))}
                    {name.flags.length ? <span class="soft"> [{name.flags.join(', ')}]</span> : null}
                  </td>
                  <td>{name.verdict}</td>
                  <td class="n">{name.accuracy ? `${number(name.accuracy.mean, 2)} (${number(name.accuracy.low, 2)} to ${number(name.accuracy.high, 2)})` : '–'}</td>
                  <td>
                    <Evidence names={names} name={name} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <p class="soft">Nothing here is among what that run named.</p>
      )}
      <p class="soft">
        A name is a rule about the two tokens of a cell, found on one half of {isolated(readable(names.corpus))} and tested on the other; accuracy is balanced, and 0.5 is a guess. “Named” is above 0.65 beyond doubt, “beyond chance” only better than guessing. Names by {[...new Set(found.map(([, name]) => name.by))].join(', ') || 'nobody'}.
        {names.other_basis ? ` ${names.other_basis} names of channels and signals are left out: they are of another basis.` : ''}
      </p>
    </>
  );
};
