// Full-text indexes: what they are, what they index, and what they find.

import { get, segment } from '../../lib/api';
import { parse, print } from '../../lib/numbers';

export type Json = Record<string, unknown>;
export interface IndexDef {
  name: string;
  uuid: string;
  type: string;
  sourceName?: string;
  params?: Json;
  planParams?: Json;
  [member: string]: unknown;
}
/** An index of the list. */
export interface Row {
  name: string;
  definition: IndexDef;
  documents: number | null;
  /** Changes that it does not have yet. */
  behind: number | null;
  bytes: number | null;
}
export interface Explanation {
  value: number;
  message: string;
  children?: Explanation[] | null;
}
export interface Hit {
  id: string;
  score: number;
  fields?: Json;
  fragments?: Record<string, string[]>;
  explanation?: Explanation;
}
interface Count {
  term?: string;
  name?: string;
  count: number;
}
export interface Facet {
  field: string;
  total: number;
  missing: number;
  other: number;
  terms?: Count[];
  numeric_ranges?: Count[];
  date_ranges?: Count[];
}
export interface Found {
  hits: Hit[];
  total_hits: number;
  max_score: number;
  took: number;
  facets?: Record<string, Facet> | null;
  status: { total: number; failed: number; successful: number; errors?: Record<string, string> };
}

const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null && !Array.isArray(value);
const objectOf = (value: unknown): Json => (isObject(value) ? value : {});

/** Parts of a full name: `bucket.scope.index`, or a global name, which has no dots. Buckets may have dots in their names, others not. */
export function partsOf(name: string): { bucket: string; scope: string; index: string } {
  const parts = name.split('.');
  if (parts.length < 3) return { bucket: '', scope: '', index: name };
  return { index: parts.at(-1) ?? '', scope: parts.at(-2) ?? '', bucket: parts.slice(0, -2).join('.') };
}

/** The path of an index, and of what is `below` it. */
export function pathOf(name: string, below = ''): string {
  const { bucket, scope, index } = partsOf(name);
  const of = bucket ? `bucket/${segment(bucket)}/scope/${segment(scope)}/index/${segment(index)}` : `index/${segment(index)}`;
  return `_p/fts/api/${of}${below && `/${below}`}`;
}

/** Indexes with their counts. The counts of an index that is not measured are missing. */
export function rowsOf(definitions: Record<string, IndexDef> | null, counts: Record<string, number>): Row[] {
  return Object.entries(definitions ?? {})
    .map(([name, definition]) => {
      const of = (what: string): number | null => counts[`${definition.sourceName}:${name}:${what}`] ?? null;
      return { name, definition, documents: of('doc_count'), behind: of('num_mutations_to_index'), bytes: of('num_bytes_used_disk') };
    })
    .sort((a, b) => a.name.localeCompare(b.name));
}

export async function readIndexes(signal: AbortSignal, background: boolean): Promise<Row[]> {
  const [list, counts] = await Promise.all([
    get<{ indexDefs: { indexDefs: Record<string, IndexDef> | null } }>('_p/fts/api/index', { signal, background }),
    get<Record<string, number>>('_p/fts/api/nsstats', { signal, background: true }),
  ]);
  return rowsOf(list.indexDefs.indexDefs, counts);
}

/** Parts of an index that an administrator has switched off. */
export function controlsOf({ planParams }: IndexDef): { ingest: boolean; query: boolean; plan: boolean } {
  const nodes = objectOf(objectOf(objectOf(planParams?.nodePlanParams)[''])['']);
  return { ingest: nodes.canWrite !== false, query: nodes.canRead !== false, plan: planParams?.planFrozen !== true };
}

export interface Ask {
  text: string;
  /** How the text is read: words of a field, the language of query strings, or JSON. */
  mode: 'words' | 'string' | 'json';
  field: string;
  size: number;
  /** Stored fields to show, with commas. */
  fields: string;
  /** Fields to count terms of, with commas. */
  facets: string;
  highlight: boolean;
  explain: boolean;
  /** Waits for what was written before. */
  fresh: boolean;
}

const list = (text: string): string[] => text.split(',').map((one) => one.trim()).filter(Boolean);

/**
 * The request of a query. JSON with a member `query` or `knn` is a whole request; other JSON is its query.
 * Throws when the text should be JSON and is not.
 */
export function requestOf(ask: Ask): Json {
  const options: Json = { size: ask.size, explain: ask.explain };
  if (ask.fields.trim()) options.fields = list(ask.fields);
  if (ask.highlight) options.highlight = {};
  if (ask.fresh) options.ctl = { consistency: { level: 'scan_plus' } };
  const facets = list(ask.facets);
  if (facets.length) options.facets = Object.fromEntries(facets.map((field) => [field, { field, size: 10 }]));
  if (ask.mode === 'json') {
    const given: unknown = JSON.parse(ask.text);
    if (!isObject(given)) throw new Error('the query must be a JSON object');
    return 'query' in given || 'knn' in given ? { ...options, ...given } : { ...options, query: given };
  }
  if (ask.text.trim() === '') return { ...options, query: { match_all: {} } };
  if (ask.mode === 'string') return { ...options, query: { query: ask.text } };
  return { ...options, query: ask.field ? { match: ask.text, field: ask.field } : { match: ask.text } };
}

const ENTITIES: Record<string, string> = { '&lt;': '<', '&gt;': '>', '&amp;': '&', '&#34;': '"', '&#39;': "'", '&quot;': '"' };

/** A fragment as texts, of which some are marked: it comes as HTML, and is never given to the browser as such. */
export function marked(fragment: string): { text: string; isMarked: boolean }[] {
  return fragment
    .split(/(<mark>.*?<\/mark>)/s)
    .filter(Boolean)
    .map((part) => {
      const inner = /^<mark>(.*)<\/mark>$/s.exec(part)?.[1];
      const text = (inner ?? part).replace(/&(?:lt|gt|amp|quot|#34|#39);/g, (entity) => ENTITIES[entity] ?? entity);
      return { text, isMarked: inner !== undefined };
    });
}

/** Values of a facet by name. */
export const countsOf = (facet: Facet): { name: string; count: number }[] =>
  [...(facet.terms ?? []), ...(facet.numeric_ranges ?? []), ...(facet.date_ranges ?? [])].map(({ term, name, count }) => ({ name: term ?? name ?? '', count }));

/** Terms of an analysed document: of each field in their order. */
export function termsOf(analyzed: unknown): { field: string; terms: string[] }[] {
  const fields = new Map<string, { position: number; term: string }[]>();
  for (const one of Array.isArray(analyzed) ? (analyzed as unknown[]) : []) {
    for (const [term, value] of Object.entries(objectOf(one))) {
      const { Locations: locations } = objectOf(value);
      for (const location of Array.isArray(locations) ? (locations as unknown[]) : []) {
        const { Field: field, Position: position } = objectOf(location);
        const name = typeof field === 'string' ? field : '';
        fields.set(name, [...(fields.get(name) ?? []), { position: Number(position), term }]);
      }
    }
  }
  return [...fields].map(([field, terms]) => ({ field, terms: terms.sort((a, b) => a.position - b.position).map(({ term }) => term) }));
}

export const ANALYZERS = ['standard', 'simple', 'keyword', 'web', 'en', 'ar', 'cjk', 'da', 'de', 'es', 'fa', 'fi', 'fr', 'hi', 'hu', 'it', 'nl', 'no', 'pt', 'ro', 'ru', 'sv', 'tr'];
export const FIELD_TYPES = ['text', 'number', 'datetime', 'boolean', 'geopoint', 'geoshape', 'IP', 'vector', 'vector_base64'];

/** An index of a collection that takes every field as what it looks like. */
export const newDefinition = (bucket: string, scope: string, collection: string): Json => ({
  type: 'fulltext-index',
  sourceType: 'couchbase',
  sourceName: bucket,
  params: {
    doc_config: { mode: 'scope.collection.type_field', type_field: 'type' },
    mapping: { default_analyzer: 'standard', default_mapping: { enabled: false }, types: { [`${scope}.${collection}`]: { enabled: true, dynamic: true } } },
  },
});

/** A field of a mapping: where it is in documents, and how it is indexed. */
export interface Field {
  path: string;
  options: Json;
}

/** Fields of a document mapping, with the paths of their properties. */
export function fieldsOf(mapping: unknown, above = ''): Field[] {
  return Object.entries(objectOf(objectOf(mapping).properties)).flatMap(([name, property]) => {
    const path = above ? `${above}.${name}` : name;
    const { fields } = objectOf(property);
    const own = (Array.isArray(fields) ? (fields as unknown[]) : []).map((options) => ({ path, options: objectOf(options) }));
    return [...own, ...fieldsOf(property, path)];
  });
}

/** A document mapping with the fields at `path` in place of those that are there; without any the property goes. */
export function withFields(mapping: unknown, path: string, fields: Json[]): Json {
  const [name = '', ...rest] = path.split('.');
  const own = objectOf(mapping);
  const properties = { ...objectOf(own.properties) };
  const property = objectOf(properties[name]);
  const next = rest.length ? withFields(property, rest.join('.'), fields) : { ...property, fields };
  const isEmpty = Object.keys(objectOf(next.properties)).length === 0 && (!Array.isArray(next.fields) || next.fields.length === 0);
  if (isEmpty) delete properties[name];
  else properties[name] = { enabled: true, dynamic: false, ...next };
  return { ...own, properties };
}

/** Mappings of an index by the name of the type; that of all other documents is nameless. */
export function mappingsOf(definition: unknown): { type: string; mapping: Json }[] {
  const mapping = objectOf(objectOf(objectOf(definition).params).mapping);
  const types = Object.entries(objectOf(mapping.types)).map(([type, one]) => ({ type, mapping: objectOf(one) }));
  return [...types, { type: '', mapping: { enabled: true, dynamic: true, ...objectOf(mapping.default_mapping) } }];
}

/** The definition with another mapping of a type; without one the type goes. */
export function withMapping(definition: unknown, type: string, next: Json | null): Json {
  const own = objectOf(definition);
  const params = objectOf(own.params);
  const mapping = objectOf(params.mapping);
  const types = { ...objectOf(mapping.types) };
  if (type && next === null) delete types[type];
  else if (type) types[type] = next;
  const changed = type ? { ...mapping, types } : { ...mapping, default_mapping: next };
  return { ...own, params: { ...params, mapping: changed } };
}

/** Members that the node writes, and that nobody edits. */
const GIVEN = ['name', 'uuid', 'sourceUUID'];

/** The definition as it is edited. */
export const editable = (definition: IndexDef): string => print(Object.fromEntries(Object.entries(definition).filter(([name]) => !GIVEN.includes(name))));

/** The definition that was typed, or what is wrong with it. */
export function read(text: string): { definition: Json | null; problem: string } {
  try {
    const definition = parse(text);
    return isObject(definition) ? { definition, problem: '' } : { definition: null, problem: 'The definition must be a JSON object.' };
  } catch (error) {
    return { definition: null, problem: error instanceof Error ? error.message : String(error) };
  }
}
