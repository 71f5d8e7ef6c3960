// What every word and number on the page means.
import { useContext } from 'preact/hooks';
import { Voices } from '../kit/tip';

export const HowTo = () => (
  <details class="howto">
    <summary>How to read this</summary>
    <dl>
      {useContext(Voices).glossary?.terms.map(({ term, formula, words }) => (
        <>
          <dt>{term}</dt>
          <dd>
            <span class="formula">{formula}</span>
            <br />
            {words}
          </dd>
        </>
      ))}
    </dl>
  </details>
);
