// What went wrong, in the server's own words, at the field that caused it.
import type { Trouble } from './app';

interface AlertProps {
  trouble: Trouble | null;
  /** The fields that it stands at: what belongs to another is not said here. */
  of?: readonly string[];
  /** Fields that say it themselves. */
  but?: readonly string[];
  id?: string;
  /** What could be given instead is a button. */
  onChoose?: (choice: string, where: string) => void;
}
export const Alert = ({ trouble, of, but, id, onChoose }: AlertProps) => {
  if (!trouble) return null;
  const { error, hint, where, choices = [] } = trouble;
  if (of ? !of.includes(where ?? '') : but?.includes(where ?? '')) return null;
  return (
    <p class="note" role="alert" id={id}>
      {error}
      {hint ? ` (${hint})` : ''}
      {onChoose && where
        ? choices.map((one) => (
            <>
              {' '}
              <button type="button" class="small choice" onClick={() => onChoose(one, where)}>
                {one.trim() === one ? one : `“${one}”`}
              </button>
            </>
          ))
        : null}
    </p>
  );
};
