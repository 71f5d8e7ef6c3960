// What tabs had asked for that were closed before it was there: whoever comes is offered it.
import { useEffect, useState } from 'preact/hooks';
import { isolated, readable } from '../text';
import type { Shared } from './app';
import { placeOf } from './place';
import type { JobList } from './wire';

/** A page that was only loaded anew asks for its own again by itself. */
const PAUSE = 800;

export const LeftJobs = ({ server, go }: Pick<Shared, 'server' | 'go'>) => {
  const [jobs, setJobs] = useState<JobList['jobs']>([]);
  useEffect(() => {
    const look = () =>
      void server.get<JobList>('/api/jobs').then(
        (got) => setJobs(got.jobs),
        () => undefined,
      );
    const wait = setTimeout(look, PAUSE);
    const deaf = server.listen(({ kind }) => kind === 'jobs' && look());
    return () => {
      clearTimeout(wait);
      deaf();
    };
  }, [server]);
  return (
    <div role="status">
      {jobs.map(({ job, about, address, done, error }) => (
        <p class="note left-job" key={job}>
          A tab that was closed had asked about {isolated(readable(about))}: {error === null ? (done ? 'its explanation is ready.' : 'its explanation is under way.') : `its explanation failed: ${readable(error)}.`}{' '}
          <button type="button" class="small" onClick={() => go(placeOf(address))}>
            open it
          </button>{' '}
          <button type="button" class="small" onClick={() => server.cancel(job)}>
            {done || error !== null ? 'let it go' : 'stop it'}
          </button>
        </p>
      ))}
    </div>
  );
};
