// Builds src/headwise/show/kit/plotly.min.js: the part of plotly.js that reports draw with.
//
//     cd tools/plotly && npm ci && npm run build
//
// The versions are pinned in package-lock.json, so the same bytes come out; tests/show/test_bundle.py holds their
// SHA-256. A new kind of trace in a report needs a line in `traces` here and a new build.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const traces = ['scatter', 'bar', 'box', 'heatmap'];

const here = path.dirname(fileURLToPath(import.meta.url));
const kit = path.join(here, '../../src/headwise/show/kit');
const plotly = path.join(here, 'node_modules/plotly.js');
const { version } = createRequire(import.meta.url)(path.join(plotly, 'package.json'));

// What an attribute means is for the reference, not for the browser (the official builds leave it out too).
const text = /'(?:[^'\\\n]|\\.)*'/.source;
const described = new RegExp(`^[ \\t]*description: (?:\\[(?:[^'\\]]|${text})*\\]\\.join\\(\\s*${text}\\s*\\)|${text}),?[ \\t]*$`, 'gm');
const withoutDescriptions = {
  name: 'without-descriptions',
  setup: (work) =>
    work.onLoad({ filter: /plotly\.js\/src\/.*\.js$/ }, ({ path: file }) => ({
      contents: readFileSync(file, 'utf8').replace(described, ''),
    })),
};

const entry = `
const Plotly = require('./lib/core');
Plotly.register([${traces.map((name) => `require('./lib/${name}')`).join(', ')}]);
module.exports = Plotly;
`;
// The licence of every package that a file of the bundle comes from.
const licences = (files) => {
  const names = files.map((file) => file.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1]).filter(Boolean);
  const texts = [...new Set(names)].sort().map((name) => {
    const place = path.join(here, 'node_modules', name);
    const about = JSON.parse(readFileSync(path.join(place, 'package.json'), 'utf8'));
    const file = readdirSync(place).find((entry) => /^licen[cs]e/i.test(entry));
    const text = file ? readFileSync(path.join(place, file), 'utf8').trim() : 'No text of the licence is distributed with it.';
    return `${name} ${about.version} (${about.license})\n${'-'.repeat(78)}\n${text.replaceAll('\r', '')}\n`;
  });
  return `plotly.min.js is made of these packages.\n\n${texts.join('\n\n')}`;
};

const made = await build({
  stdin: { contents: entry, resolveDir: plotly, sourcefile: 'entry.js' },
  bundle: true,
  minify: true,
  format: 'iife',
  globalName: 'Plotly',
  target: 'es2020',
  legalComments: 'inline',
  define: { global: 'window', 'define.amd': 'false', 'process.env.NODE_DEBUG': 'false' },
  loader: { '.css': 'empty' },  // the style sheet of maps, which no report has
  plugins: [withoutDescriptions],
  metafile: true,
  write: false,
  logLevel: 'warning',
});
// A file of which nothing is left in the bundle needs no licence there.
const [{ inputs }] = Object.values(made.metafile.outputs);
const bundled = Object.keys(inputs).filter((file) => file.endsWith('.js') && inputs[file].bytesInOutput > 0);
const banner = `/*! plotly.js ${version}, traces ${traces.join(', ')}; MIT; this and the licences of its parts: plotly.LICENSE */\n`;
// A page holds the script between tags: nothing in it may look like their end.
const code = (banner + made.outputFiles[0].text).replaceAll('</script', '<\\/script');
writeFileSync(path.join(kit, 'plotly.min.js'), code);
writeFileSync(path.join(kit, 'plotly.LICENSE'), licences(bundled));
console.log(`plotly.min.js: ${code.length} characters, sha256 ${createHash('sha256').update(code).digest('hex')}`);
