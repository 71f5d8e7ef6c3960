// What is wanted seldom, or last: a script of its own, which the app loads when the first of it is wanted.
import { useEffect, useState } from 'preact/hooks';
import type { Later, Server } from '../host';
import { Alert } from './alert';
import type { Shared, Trouble } from './app';
import { troubleOf } from './app';

let loaded: Later | null = null;

export const useLater = (server: Server): { parts: Later | null; trouble: Trouble | null } => {
  const [parts, setParts] = useState(loaded);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  useEffect(() => {
    if (parts) return;
    server.screens().then(
      (got) => setParts((loaded = got)),
      (error) => setTrouble(troubleOf(error)),
    );
  }, [server]);
  return { parts, trouble };
};

export const LaterScreen = ({ name, ...shared }: Shared & { name: 'circuit' | 'compare' | 'runs' }) => {
  const { parts, trouble } = useLater(shared.server);
  if (!parts) return trouble ? <Alert trouble={trouble} /> : <p role="status">loading …</p>;
  const Screen = parts[name];
  return <Screen {...shared} />;
};
