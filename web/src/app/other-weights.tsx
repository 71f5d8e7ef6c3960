// A link whose numbers were made with other weights than those that are here.
import { isolated, readable } from '../text';
import type { Shared } from './app';
import { useModel } from './model';
import { weightsIn } from './place';

export const OtherWeights = ({ server, place, state, go }: Pick<Shared, 'server' | 'place' | 'state' | 'go'>) => {
  const { loading, trouble, load } = useModel({ server, go });
  if (!state || !place.weights || place.weights === weightsIn(state.weight_hash)) return null;
  const other = place.model && place.model !== state.model ? `with the model ${isolated(readable(place.model))}` : 'with other weights of this model';
  return (
    <p class="note other-weights" role="alert">
      This link was made {other}: here its numbers come from {isolated(readable(state.model))}, and differ.{' '}
      <button type="button" class="small" onClick={() => go({ model: state.model, weights: weightsIn(state.weight_hash) }, 'replace')}>
        go on with {isolated(readable(state.model))}
      </button>{' '}
      {state.models.includes(place.model) && place.model !== state.chosen ? (
        <button type="button" class="small" disabled={loading !== null} onClick={() => load(place.model)}>
          load {isolated(readable(place.model))}
        </button>
      ) : null}
      {trouble ? ` ${trouble.error}` : ''}
    </p>
  );
};
