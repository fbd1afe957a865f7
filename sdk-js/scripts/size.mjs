// Prints how large the package is, minified and compressed: `entry` is what a program loads that imports it, `whole` is
// that with all parts which are loaded when they are used, `http` is the entry for browsers.

import { rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'

import { build } from 'esbuild'

const outdir = join(tmpdir(), `nacre-size-${process.pid}`)

/** Bytes of an entry: what it imports at once, and all of it. */
async function measure(name, platform = 'node') {
  const { outputFiles, metafile } = await build({
    entryPoints: [new URL(`../dist/lib/${name}.js`, import.meta.url).pathname],
    bundle: true,
    splitting: true,
    minify: true,
    platform,
    format: 'esm',
    outdir,
    absWorkingDir: tmpdir(),
    metafile: true,
    write: false,
  })
  const contents = new Map(outputFiles.map(({ path, contents }) => [path, contents]))
  const outputs = new Map(Object.entries(metafile.outputs).map(([path, output]) => [join(tmpdir(), path), output]))
  const first = [...outputs.keys()].find((path) => path.endsWith(`/${name}.js`))
  const reached = new Set([first])
  for (const path of reached) {
    for (const { path: next, kind } of outputs.get(path).imports) {
      if (kind === 'import-statement' && outputs.has(join(tmpdir(), next))) reached.add(join(tmpdir(), next))
    }
  }
  const sum = (paths) => {
    const parts = [...paths].map((path) => contents.get(path))
    const gzip = parts.reduce((total, part) => total + gzipSync(part, { level: 9 }).length, 0)
    return { minified: parts.reduce((total, part) => total + part.length, 0), gzip }
  }
  return { entry: sum(reached), whole: sum(contents.keys()) }
}

const { entry, whole } = await measure('index')
console.log(JSON.stringify({ entry, whole, http: (await measure('web', 'browser')).whole }))
rmSync(outdir, { recursive: true, force: true })
