// What went wrong, in the server's own words.
import type { Trouble } from './app';

export const Alert = ({ trouble }: { trouble: Trouble | null }) =>
  trouble ? (
    <p class="note" role="alert">
      {trouble.error}
      {trouble.hint ? ` (${trouble.hint})` : ''}
    </p>
  ) : null;
