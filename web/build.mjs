// Builds src/headwise/show/assets/headwise.js and headwise.css, the one bundle that every page of headwise is made of,
// and app.js, through which the app's page asks its server.
//
//     make web            or, where Node is at hand:  cd web && npm ci --ignore-scripts && npm run build
//     npm run build DIR   the same into another folder
//
// Versions are pinned in package-lock.json, so the same sources give the same bytes. The header names the sources by
// their digest: tests/show/test_web.py compares it without Node, and the whole bundle with it.
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = path.dirname(fileURLToPath(import.meta.url));
const target = path.resolve(process.argv[2] ?? path.join(here, '../src/headwise/show/assets'));

const sources = () => {
  const inside = readdirSync(path.join(here, 'src'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(here, path.join(entry.parentPath, entry.name)).replaceAll(path.sep, '/'));
  return [...inside, 'build.mjs', 'package-lock.json', 'package.json', 'tsconfig.json'].sort();
};
const digest = () => {
  const hash = createHash('sha256');
  for (const name of sources()) hash.update(`${name}\n`).update(readFileSync(path.join(here, name), 'utf8').replaceAll('\r', '')).update('\0');
  return hash.digest('hex');
};

// The licence of every package of which something is in the bundle.
const licences = (inputs) => {
  const names = Object.keys(inputs).map((file) => file.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1]).filter(Boolean);
  return [...new Set(names)].sort().map((name) => {
    const place = path.join(here, 'node_modules', name);
    const { version, license } = JSON.parse(readFileSync(path.join(place, 'package.json'), 'utf8'));
    return `${name} ${version} (${license})\n\n${readFileSync(path.join(place, 'LICENSE'), 'utf8').replaceAll('\r', '').trim()}`;
  });
};

const common = {
  absWorkingDir: here,
  outdir: target,
  bundle: true,
  minify: true,
  format: 'iife',
  target: ['chrome123', 'firefox120', 'safari17.5'],
  charset: 'utf8',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  metafile: true,
  write: false,
  logLevel: 'warning',
};

// The app is a script of its own, so that no saved page carries it. What it uses of the bundle it takes from the bundle:
// headwise.inside has the modules by their names, as few as the app's sources import.
const isApps = (name) => name.startsWith('app/') || name === 'server';
const named = (source, from) => (source.startsWith('.') ? path.relative(path.join(here, 'src'), path.resolve(from, source)).replaceAll(path.sep, '/') : source);
const shared = () => {
  const files = sources().filter((name) => /^src\/(app\/.*|server)\.tsx?$/.test(name));
  const found = files.flatMap((name) =>
    [...readFileSync(path.join(here, name), 'utf8').matchAll(/^import (?!type).* from '([^']+)';$/gm)].map(([, source]) => named(source, path.dirname(path.join(here, name)))),
  );
  return [...new Set([...found, 'preact/jsx-runtime'])].filter((name) => !isApps(name)).sort();
};
const inside = {
  name: 'inside',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^headwise:inside$/ }, () => ({ path: 'inside', namespace: 'inside' }));
    onLoad({ filter: /.*/, namespace: 'inside' }, () => {
      const names = shared();
      const places = names.map((name) => (name.startsWith('preact') ? name : `./${name}`));
      const lines = places.map((place, i) => `import * as m${i} from ${JSON.stringify(place)};`);
      return { contents: `${lines.join('\n')}\nexport const inside = { ${names.map((name, i) => `${JSON.stringify(name)}: m${i}`).join(', ')} };`, resolveDir: path.join(here, 'src') };
    });
  },
};
const outside = {
  name: 'outside',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /.*/ }, ({ path: source, resolveDir, kind }) => {
      const name = named(source, resolveDir);
      return kind === 'entry-point' || isApps(name) ? null : { path: name, namespace: 'outside' };
    });
    onLoad({ filter: /.*/, namespace: 'outside' }, ({ path: name }) => ({ contents: `module.exports = headwise.inside[${JSON.stringify(name)}];` }));
  },
};

// The bundle can ask nobody; the app's own script asks the app.
const made = [
  await build({ ...common, entryPoints: { headwise: 'src/index.tsx' }, globalName: 'headwise', plugins: [inside] }),
  await build({ ...common, entryPoints: { app: 'src/server.ts' }, plugins: [outside] }),
];

const header = `headwise, from sources ${digest()}`;
const inputs = new Map(made.flatMap((one) => Object.entries(one.metafile.outputs)).map(([name, one]) => [path.basename(name), one.inputs]));
const banner = (name) => `/*! ${[header, ...(name.endsWith('.js') ? licences(inputs.get(name)) : [])].join('\n\n')} */\n`;
mkdirSync(target, { recursive: true });
for (const file of made.flatMap((one) => one.outputFiles)) {
  // A page holds the script and the style between tags: nothing in them may look like their end.
  const text = (banner(path.basename(file.path)) + file.text).replaceAll('</script', '<\\/script').replaceAll('</style', '<\\/style');
  writeFileSync(file.path, text);
  console.log(`${path.basename(file.path)}: ${Buffer.byteLength(text)} bytes`);
}
