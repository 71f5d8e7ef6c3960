// A screen whose script is loaded when it is first wanted.
import { useEffect, useState } from 'preact/hooks';
import type { Later } from '../host';
import { Alert } from './alert';
import type { Shared, Trouble } from './app';
import { troubleOf } from './app';

let loaded: Later | null = null;

export const LaterScreen = ({ name, ...shared }: Shared & { name: keyof Later }) => {
  const [screens, setScreens] = useState(loaded);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const { server } = shared;
  useEffect(() => {
    if (screens) return;
    server.screens().then(
      (got) => setScreens((loaded = got)),
      (error) => setTrouble(troubleOf(error)),
    );
  }, [server]);
  if (!screens) return trouble ? <Alert trouble={trouble} /> : <p role="status">loading …</p>;
  const Screen = screens[name];
  return <Screen {...shared} />;
};
