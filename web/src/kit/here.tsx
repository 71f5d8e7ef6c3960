// The one cell of a canvas that has the focus, for those who cannot see the canvas: a grid of which only this cell is told.
import type { ComponentChildren } from 'preact';

export const Here = ({ id, children }: { id: string; children: ComponentChildren }) => (
  <div role="row">
    <div role="gridcell" id={id}>
      {children}
    </div>
  </div>
);
