// Words that the page's glossary holds, so that the script need not.
import { useContext } from 'preact/hooks';
import { Voices } from './tip';

export const Caption = ({ of }: { of: string }) => <>{useContext(Voices).glossary?.captions[of]}</>;
