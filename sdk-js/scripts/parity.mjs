// Writes docs/reference/sdk-js-parity.md: what the official Node package has, and what this one has of it.
//
//     npm run build && node scripts/parity.mjs <folder with node_modules/couchbase> [--check]
//
// Both sides are read from their declarations; the official package is not run. With `--check` nothing is written: it fails
// when the page is old, or something is missing without a reason.

import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const [folder = '.', flag] = process.argv.slice(2)
const official = join(folder, 'node_modules/couchbase')
const own = new URL('../dist/src/', import.meta.url).pathname
const target = new URL('../../docs/reference/sdk-js-parity.md', import.meta.url)

/** Why something is not there: the first pattern that its name (`Class.method`) matches. */
const REASONS = [
  [/^(Jwt\w*|IJwt\w*)/, 'key-value takes no tokens; `nacre/http` takes those of nacre'],
  [/^(ViewExecutor|SearchQuery\.hasProp)/, 'internal to the official package'],
  [/^ViewQuery(Id|Key)Range$/, 'a plain object, `range` and `idRange` of the options'],
  [/^(isOptions|lcbVersion|cbppVersion|cbppMetadata)$/, 'about the native code of the official package'],
  [
    /^(AppTelemetry\w*|DnsConfig)/,
    'no such settings: servers take no telemetry, and the system asks for names',
  ],
  [/^(MutationToken|NodeCallback|Cas)$/, 'a CAS is a bigint, a token a plain object, and there are no callbacks'],
]

/** Why an error is not there. */
const ERROR_REASONS = { ValueNotJsonError: 'the official package has the class and throws it nowhere' }

function reasonOf(name) {
  return REASONS.find(([pattern]) => pattern.test(name))?.[1] ?? 'not yet'
}

/** Why an option is not there. */
const OPTION_REASONS = [
  [/\.appTelemetryConfig$|^AppTelemetry/, 'the server takes no telemetry of applications'],
  [/dns/i, 'the system asks for names'],
  [/upsertDocument$/, 'an older name of `storeSemantics`'],
  [/^PingOptions\.bucket$/, '`bucket.ping` pings a bucket'],
  [/\.log(Request|Response)$/, 'they ask the server for lines in its log, which it does not write'],
  [/^TouchOptions\.durabilityLevel$/, 'the protocol has no durable touch'],
]

function optionReasonOf(name) {
  return OPTION_REASONS.find(([pattern]) => pattern.test(name))?.[1] ?? 'not yet'
}

/** Options by the name of their interface, with those that it extends; `declarations` are files. */
function readOptions(files) {
  const interfaces = new Map()
  for (const file of files) {
    const text = readFileSync(file, 'utf8').replace(/\/\*[\s\S]*?\*\//g, '')
    for (const [, name, bases = '', body] of text.matchAll(
      /^(?:export )?(?:declare )?interface (\w+)(?:<[^{]*?>)?(?: extends ([^{]*?))? \{\n([\s\S]*?)^\}/gm,
    )) {
      const members = [...body.matchAll(/^ {4}(?:readonly )?(\w+)\??:/gm)].map(([, member]) => member)
      const picked = [...bases.matchAll(/Pick<\w+, ([^>]*)>/g)].flatMap(([, list]) => list.match(/\w+/g) ?? [])
      interfaces.set(name, { members: [...members, ...picked], bases: bases.match(/\w+/g) ?? [] })
    }
    for (const [, name, base] of text.matchAll(/^export type (\w+Options) = (\w+Options);/gm)) {
      interfaces.set(name, { members: [], bases: [base] })
    }
  }
  const whole = (name) => {
    const found = interfaces.get(name)
    return new Set(found ? [...found.members, ...found.bases.flatMap((base) => [...whole(base)])] : [])
  }
  return { names: [...interfaces.keys()].filter((name) => /(Options|Config)$/.test(name)), whole }
}

/** Classes with their methods, and all other exported names, of declarations. */
function read(files) {
  const classes = new Map()
  const names = new Set()
  for (const file of files) {
    const text = readFileSync(file, 'utf8').replace(/\/\*[\s\S]*?\*\//g, '')
    for (const [, base, name] of text.matchAll(/(\w+) as (\w+)/g)) {
      names.add(name)
      if (/^(Streamable|TransactionGetMulti)/.test(base)) classes.set(name, { methods: new Set(), base })
    }
    for (const [, kind, name] of text.matchAll(
      /^export (?:declare )?(?:abstract )?(class|interface|enum|function|const|type) (\w+)/gm,
    )) {
      names.add(name)
      if (kind === 'class') classes.set(name, { methods: new Set(), base: undefined })
    }
    for (const [, name, base, body] of text.matchAll(
      /^(?:export )?(?:declare )?(?:abstract )?class (\w+)(?:<[^{]*?>)?(?: extends (\w+))?[^{]*\{\n([\s\S]*?)^\}/gm,
    )) {
      const found = classes.get(name) ?? { methods: new Set(), base: undefined }
      found.base = base
      for (const line of body.split('\n')) {
        const member = /^ {4}(?:static )?(?:readonly )?(?:get |set )?(\w+)(?:<.*?>)?(?:\(|\??: )/.exec(line)
        const isMethod = member && /^ {4}(static |get )|^ {4}\w+(<.*?>)?\(|^ {4}static readonly/.test(line)
        if (isMethod && !/^ {4}(private|protected)/.test(line)) found.methods.add(member[1])
        // What ours has as a property counts for a getter.
        const property = /^ {4}(?:readonly )?(\w+)\??: /.exec(line)
        if (property) found.methods.add(`=${property[1]}`)
      }
      classes.set(name, found)
    }
  }
  return { classes, names }
}

function methodsOf(classes, name) {
  const found = classes.get(name)
  if (!found) return new Set()
  return new Set([...found.methods, ...(found.base ? methodsOf(classes, found.base) : [])])
}

const declarations = (path) =>
  readdirSync(path)
    .filter((name) => name.endsWith('.d.ts'))
    .map((name) => join(path, name))

const exported = readFileSync(join(official, 'dist/couchbase.d.ts'), 'utf8').matchAll(/export \* from '\.\/(\w+)'/g)
const theirs = read([...exported].map(([, name]) => join(official, `dist/${name}.d.ts`)))
theirs.names.add('connect')
const ours = read(declarations(own))
const theirOptions = readOptions(declarations(join(official, 'dist')))
const ourOptions = readOptions(declarations(own))
const { OPTION_NAMES } = await import(join(own, 'option-names.js'))
const { version } = JSON.parse(readFileSync(join(official, 'package.json'), 'utf8'))

/** Internal to the official package, though declared without an underscore. */
const INTERNAL = new Set([
  'constructor',
  'conn',
  'impl',
  'toJSON',
  'inspect',
  'observabilityInstruments',
  'toString',
  'then',
  'catch',
  'finally',
])
/** Older names of members that the official package keeps. */
const DEPRECATED = new Set([
  'value',
  'expiry',
  'results',
  'total_rows',
  'maxTTL',
  'ejectionMethod',
  'durabilityMinLevel',
  'effectiveRolesAndOrigins',
  'View',
])

const rows = []
const count = { methods: 0, methodsHere: 0, errors: 0, errorsHere: 0, names: 0, namesHere: 0 }
for (const [name, { methods }] of [...theirs.classes].sort(([a], [b]) => (a < b ? -1 : 1))) {
  if (/Error$|^InvalidDurability/.test(name)) continue
  const here = methodsOf(ours.classes, name)
  for (const method of [...methods].sort()) {
    if (method.startsWith('_') || method.startsWith('=') || INTERNAL.has(method) || DEPRECATED.has(method)) continue
    const isHere = here.has(method) || here.has(`=${method}`)
    count.methods++
    if (isHere) count.methodsHere++
    rows.push({ name: `${name}.${method}`, isHere })
  }
}
const errors = [...theirs.classes.keys()].filter((name) => /Error$|^InvalidDurability/.test(name))
for (const name of errors) {
  count.errors++
  if (ours.classes.has(name)) count.errorsHere++
}
const others = [...theirs.names].filter((name) => !name.startsWith('Cpp') && !errors.includes(name)).sort()
const missingNames = others.filter((name) => !ours.names.has(name) && !/Options$/.test(name))
count.names = others.filter((name) => !/Options$/.test(name)).length
count.namesHere = count.names - missingNames.length

/** Interfaces of ours that have another name, and operations whose options have no interface of their own. */
const OTHER_OPTIONS = {
  AppendOptions: 'append', PrependOptions: 'prepend', IncrementOptions: 'increment', DecrementOptions: 'decrement',
  UpsertSearchIndexOptions: 'upsertIndex', GetSearchIndexOptions: 'getIndex', GetAllSearchIndexesOptions: 'getAllSearchIndexes',
  GetAllQueryIndexesOptions: 'getAllIndexes', GetQueryIndexOptions: 'getAllIndexes', BuildQueryIndexOptions: 'buildDeferredIndexes',
  CreateQueryIndexOptions: 'createIndex', FunctionsStatusOptions: 'functionsStatus', GetAllFunctionsOptions: 'getAllFunctions',
  AnalyzeSearchDocumentOptions: 'analyzeDocument', GetAllDesignDocumentOptions: 'getAllDesignDocuments',
  GetSearchIndexedDocumentsCountOptions: 'getIndexedDocumentsCount',
}
const optionRows = []
for (const name of theirOptions.names.sort()) {
  if (!theirs.names.has(name)) continue
  const operation = OTHER_OPTIONS[name] ?? name[0].toLowerCase() + name.slice(1).replace(/Options$/, '')
  const control = /(Ingest|Querying|Plan|Function)/.test(name) ? ['timeout', 'parentSpan'] : []
  const older = name === 'ViewQueryOptions' ? ['full_set', 'group_level', 'id_range', 'on_error', 'stale'] : []
  const here = new Set([...ourOptions.whole(name), ...older, ...Object.keys(OPTION_NAMES[operation] ?? {}), ...control])
  for (const option of [...theirOptions.whole(name)].sort()) {
    if (DEPRECATED.has(option)) continue
    optionRows.push({ name: `${name}.${option}`, isHere: here.has(option) })
  }
}
const optionsHere = optionRows.filter(({ isHere }) => isHere).length
const missingOptions = optionRows.filter(({ isHere }) => !isHere)
const optionReasons = new Map()
for (const { name } of missingOptions) {
  optionReasons.set(optionReasonOf(name), [...(optionReasons.get(optionReasonOf(name)) ?? []), name])
}

const share = (part, whole) => `${part} of ${whole} (${Math.round((part / whole) * 1000) / 10} %)`
const missing = rows.filter(({ isHere }) => !isHere)
const reasons = new Map()
for (const { name } of missing) reasons.set(reasonOf(name), [...(reasons.get(reasonOf(name)) ?? []), name])
const nameReasons = new Map()
for (const name of missingNames) nameReasons.set(reasonOf(name), [...(nameReasons.get(reasonOf(name)) ?? []), name])
const applying = rows.filter(({ name, isHere }) => isHere || !/^internal/.test(reasonOf(name)))
const list = (groups) =>
  [...groups].map(([reason, names]) => `| ${reason} | ${names.map((name) => `\`${name}\``).join(', ')} |`)
const byClass = new Map()
for (const { name, isHere } of rows) {
  const [kind, method] = name.split('.')
  byClass.set(kind, [...(byClass.get(kind) ?? []), isHere ? `\`${method}\`` : `~~\`${method}\`~~`])
}

const page = `# The JavaScript client compared with the official one

Generated by \`sdk-js/scripts/parity.mjs\` from the declarations of the npm package \`couchbase\` ${version}; do not edit it. Members that the
official package keeps under older names, and those that only it uses itself, are not counted.

| | there |
| --- | --- |
| methods and getters of classes | ${share(count.methodsHere, count.methods)} |
| the same, without internals of the official package | ${share(count.methodsHere, applying.length)} |
| errors | ${share(count.errorsHere, count.errors)} |
| options of methods | ${share(optionsHere, optionRows.length)} |
| other exported names, without those of options | ${share(count.namesHere, count.names)} |

## Methods that are not there

| why | methods |
| --- | --- |
${list(reasons).join('\n')}

## Errors that are not there

${
  errors
    .filter((name) => !ours.classes.has(name))
    .map((name) => `\`${name}\`: ${ERROR_REASONS[name] ?? 'not yet'}.`)
    .join(' ') || 'None.'
}

## Options that are not there

| why | options |
| --- | --- |
${list(optionReasons).join('\n')}

## Other names that are not there

| why | names |
| --- | --- |
${list(nameReasons).join('\n')}

## Every method

| class | methods; those struck through are not there |
| --- | --- |
${[...byClass].map(([kind, methods]) => `| \`${kind}\` | ${methods.join(', ')} |`).join('\n')}

Only here: \`Collection.changes\`, \`Cluster.live\`, \`Scope.live\`, \`signal\` in every operation's options, \`for await\` over every result that has rows,
and \`await using\` for the cluster.
`
const unexplained = [...missing, ...errors.filter((name) => !ours.classes.has(name) && !ERROR_REASONS[name]).map((name) => ({ name })), ...missingOptions.map(({ name }) => ({ name: `option ${name}` }))].filter(
  ({ name }) => (name.startsWith('option ') ? optionReasonOf(name.slice(7)) : reasonOf(name)) === 'not yet',
)
if (flag === '--check') {
  if (readFileSync(target, 'utf8') !== page) throw new Error('the page is old: cargo xtask sdk parity')
} else {
  writeFileSync(target, page)
}
console.log(
  `methods ${share(count.methodsHere, count.methods)}, applying ${share(count.methodsHere, applying.length)}, errors ${share(count.errorsHere, count.errors)}, names ${share(count.namesHere, count.names)}`,
)
console.log('not there, without a reason:', unexplained.map(({ name }) => name).join(' ') || 'none')
if (flag === '--check' && unexplained.length) process.exitCode = 1
