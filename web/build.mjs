// Builds src/headwise/show/assets/headwise.js and headwise.css, the one bundle that every page of headwise is made of,
// app.js, through which the app's page asks its server, and screens.js, what of the app is wanted seldom, or last.
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

// Three scripts, one after the other: the bundle, which every page has; the app's, which no saved page carries; and what
// is wanted seldom or last, loaded when the first of it is. What a script uses of an earlier one it takes from
// there: headwise.inside has exactly what later sources import, by number.
const src = path.join(here, 'src');
const SCRIPTS = [
  { name: 'headwise', entry: 'src/index.tsx', globalName: 'headwise', has: () => true },
  { name: 'app', entry: 'src/server.ts', has: (name) => name.startsWith('app/') || name === 'server' },
  // A module, so that it can be loaded later; it hands over what it exports.
  { name: 'screens', entry: 'src/screens/index.ts', format: 'esm', has: (name) => name.startsWith('screens/') },
];
const scriptOf = (name) => SCRIPTS.findLastIndex((one) => one.has(name));
const named = (source, from) => (source.startsWith('.') ? path.relative(src, path.resolve(from, source)).replaceAll(path.sep, '/') : source);
const JSX = 'preact/jsx-runtime';
const lent = SCRIPTS.map(() => new Map());
const lend = (from, one) => lent[scriptOf(from)].set(`${from} ${one}`, [from, one]);
for (const one of ['Fragment', 'jsx', 'jsxs']) lend(JSX, one);
for (const file of sources().filter((one) => /^src\/.*\.tsx?$/.test(one))) {
  const text = readFileSync(path.join(here, file), 'utf8');
  const taker = scriptOf(file.replace(/^src\/|\.tsx?$/g, ''));
  for (const [, list, source] of text.matchAll(/^import \{ ([^}]+) \} from '([^']+)';$/gm)) {
    const from = named(source, path.dirname(path.join(here, file)));
    if (scriptOf(from) < taker && !from.startsWith('headwise:')) for (const one of list.split(', ')) lend(from, one);
  }
}
const numbers = new Map(lent.flatMap((one) => [...one.keys()]).map((key, i) => [key, i]));
const virtual = (name, filter, contents, isOurs = () => true) => ({
  name,
  setup({ onResolve, onLoad }) {
    onResolve({ filter }, ({ path: source, resolveDir, kind }) => (kind === 'entry-point' || !isOurs(named(source, resolveDir)) ? null : { path: named(source, resolveDir), namespace: name }));
    onLoad({ filter: /.*/, namespace: name }, ({ path: source }) => ({ contents: contents(source), resolveDir: src }));
  },
});
const inside = (script) =>
  virtual('inside', /^headwise:inside$/, () => {
    const each = [...lent[script].values()];
    return [...each.map(([from, one], i) => `import { ${one} as i${i} } from '${from.startsWith('preact') ? from : `./${from}`}';`), `export const inside = [${each.map((_, i) => `i${i}`)}];`].join('\n');
  });
const taken = (from) => lent.flatMap((one) => [...one.values()]).filter(([of]) => of === from);
const outside = (script) =>
  virtual('outside', /.*/, (from) => taken(from).map(([, one]) => `export const ${one} = headwise.inside[${numbers.get(`${from} ${one}`)}];`).join('\n'), (name) => scriptOf(name) < script);

// The bundle can ask nobody; the app's own script asks the app.
const made = [];
for (const [i, { name, entry, globalName, format }] of SCRIPTS.entries())
  made.push(await build({ ...common, ...(globalName && { globalName }), ...(format && { format }), entryPoints: { [name]: entry }, plugins: i ? [inside(i), outside(i)] : [inside(i)] }));

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
