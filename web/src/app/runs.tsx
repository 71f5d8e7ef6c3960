// Run folders that were named on the command line, and their saved pages, which are shown without any rights.
import { isolated, readable } from '../text';
import type { Shared } from './app';
import type { AppState } from './wire';

export const RunsScreen = ({ state, place, go }: Pick<Shared, 'place' | 'go'> & { state: AppState }) => {
  const shown = state.runs.find((one) => one.index === place.run && one.pages.includes(place.page));
  return (
    <section class="runs-screen">
      <h1>Runs</h1>
      {state.runs.length ? (
        <table class="run-list">
          <thead>
            <tr>
              <th scope="col">folder</th>
              <th scope="col">what was studied</th>
              <th scope="col">saved pages</th>
            </tr>
          </thead>
          <tbody>
            {state.runs.map((one) => (
              <tr>
                <th scope="row">{isolated(readable(one.name))}</th>
                <td>{one.kind === null ? 'not a run folder, or one that is not finished' : isolated(readable(one.kind))}</td>
                <td>
                  {one.pages.length
                    ? one.pages.map((page) => (
                        <button type="button" class="small" aria-pressed={one.index === place.run && page === place.page} onClick={() => go({ run: one.index, page })}>
                          {isolated(readable(page))}
                        </button>
                      ))
                    : 'none'}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : (
        <p>No run folder was named: start the app with --runs DIR.</p>
      )}
      {shown ? <iframe class="saved-page" sandbox="allow-scripts" src={`/api/runs/${shown.index}/${encodeURIComponent(place.page)}`} title={`Saved page ${readable(place.page)}`} /> : null}
    </section>
  );
};
