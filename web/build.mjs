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
// The bundle can ask nobody; the app's own script, which only the app's page has, asks the app.
const made = [
  await build({ ...common, entryPoints: { headwise: 'src/index.tsx' }, globalName: 'headwise' }),
  await build({ ...common, entryPoints: { app: 'src/server.ts' } }),
];

const header = `headwise, from sources ${digest()}`;
const inputs = Object.assign({}, ...made.flatMap((one) => Object.values(one.metafile.outputs)).map((one) => one.inputs));
const banner = { '.js': `/*! ${[header, ...licences(inputs)].join('\n\n')}\n*/\n`, '.css': `/*! ${header} */\n` };
mkdirSync(target, { recursive: true });
for (const file of made.flatMap((one) => one.outputFiles)) {
  // A page holds the script and the style between tags: nothing in them may look like their end.
  const text = (banner[path.extname(file.path)] + file.text).replaceAll('</script', '<\\/script').replaceAll('</style', '<\\/style');
  writeFileSync(file.path, text);
  console.log(`${path.basename(file.path)}: ${Buffer.byteLength(text)} bytes`);
}
