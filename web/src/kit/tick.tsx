// A box to tick where there is a bench: what is ticked leaves the running model.
import type { Host, Tick } from '../host';

export const TickBox = ({ host, what, name }: { host: Host; what: Tick; name: string }) =>
  host.bench ? <input type="checkbox" class="tick" aria-label={`Take ${name} away`} checked={host.bench.ticked(what)} onChange={() => host.bench?.toggle(what)} /> : null;
