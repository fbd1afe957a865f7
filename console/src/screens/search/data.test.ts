import { expect, it, vi } from 'vitest';

vi.stubGlobal('document', { baseURI: 'http://127.0.0.1:8091/ui/index.html' });
const { controlsOf, countsOf, editable, fieldsOf, mappingsOf, marked, newDefinition, partsOf, pathOf, read, requestOf, rowsOf, termsOf, withFields, withMapping } = await import('./data');

const ask = { text: '', mode: 'string' as const, field: '', size: 10, fields: '', facets: '', highlight: false, explain: false, fresh: false };

it('finds an index by its full name, whatever dots its bucket has', () => {
  expect(partsOf('a.b.s.i')).toEqual({ bucket: 'a.b', scope: 's', index: 'i' });
  expect(pathOf('global')).toBe('_p/fts/api/index/global');
  expect(pathOf('a b.s.i', 'query')).toBe('_p/fts/api/bucket/a%20b/scope/s/index/i/query');
});

it('lists indexes with what is known of them', () => {
  const definition = { name: 'i', uuid: '1', type: 'fulltext-index', sourceName: 'b' };
  const rows = rowsOf({ 'b.s.i': definition, 'b.s.a': { ...definition, type: 'fulltext-alias', sourceName: '' } }, { 'b:b.s.i:doc_count': 4, 'b:b.s.i:num_mutations_to_index': 2 });
  expect(rows.map(({ name, documents, behind, bytes }) => [name, documents, behind, bytes])).toEqual([['b.s.a', null, null, null], ['b.s.i', 4, 2, null]]);
  expect(rowsOf(null, {})).toEqual([]);
  expect(controlsOf(definition)).toEqual({ ingest: true, query: true, plan: true });
  expect(controlsOf({ ...definition, planParams: { planFrozen: true, nodePlanParams: { '': { '': { canRead: true, canWrite: false } } } } })).toEqual({ ingest: false, query: true, plan: false });
});

it('makes requests of what is typed', () => {
  expect(requestOf(ask)).toEqual({ size: 10, explain: false, query: { match_all: {} } });
  expect(requestOf({ ...ask, text: '+a:b', fields: 'x, y', facets: 'kind', highlight: true, fresh: true })).toEqual({ size: 10, explain: false, fields: ['x', 'y'], highlight: {}, ctl: { consistency: { level: 'scan_plus' } }, facets: { kind: { field: 'kind', size: 10 } }, query: { query: '+a:b' } });
  expect(requestOf({ ...ask, mode: 'words', text: 'red car', field: 'title' }).query).toEqual({ match: 'red car', field: 'title' });
  expect(requestOf({ ...ask, mode: 'json', text: '{"term":"a"}' }).query).toEqual({ term: 'a' });
  expect(requestOf({ ...ask, mode: 'json', text: '{"knn":[],"size":3}' })).toEqual({ knn: [], size: 3, explain: false });
  expect(() => requestOf({ ...ask, mode: 'json', text: '[]' })).toThrow('a JSON object');
});

it('reads fragments as texts', () => {
  expect(marked('a &lt;b&gt; <mark>c &amp; d</mark>&#34;')).toEqual([{ text: 'a <b> ', isMarked: false }, { text: 'c & d', isMarked: true }, { text: '"', isMarked: false }]);
  expect(marked('<img src=x onerror=alert(1)>')).toEqual([{ text: '<img src=x onerror=alert(1)>', isMarked: false }]);
});

it('counts values of facets and orders terms', () => {
  expect(countsOf({ field: 'f', total: 3, missing: 0, other: 0, terms: [{ term: 'a', count: 2 }], numeric_ranges: [{ name: 'old', count: 1 }] })).toEqual([{ name: 'a', count: 2 }, { name: 'old', count: 1 }]);
  const at = (Field: string, Position: number) => ({ Locations: [{ Field, Position }] });
  expect(termsOf([{ walk: at('plot', 2), strang: at('plot', 1) }, { red: at('title', 1) }, null])).toEqual([{ field: 'plot', terms: ['strang', 'walk'] }, { field: 'title', terms: ['red'] }]);
  expect(termsOf(undefined)).toEqual([]);
});

it('edits the fields of a mapping and leaves what it does not know', () => {
  const definition = newDefinition('b', 's', 'c');
  const [first] = mappingsOf(definition);
  if (!first) throw new Error('a mapping');
  expect([first.type, first.mapping]).toEqual(['s.c', { enabled: true, dynamic: true }]);
  const deep = withFields({ ...first.mapping, default_analyzer: 'en' }, 'geo.at', [{ type: 'geopoint', index: true }]);
  expect(fieldsOf(deep)).toEqual([{ path: 'geo.at', options: { type: 'geopoint', index: true } }]);
  expect(deep.default_analyzer).toBe('en');
  expect(withFields(deep, 'geo.at', []).properties).toEqual({});
  const changed = withMapping(definition, 's.c', deep);
  expect(mappingsOf(changed)[0]?.mapping).toEqual(deep);
  expect(mappingsOf(withMapping(changed, 's.c', null)).map(({ type }) => type)).toEqual(['']);
  expect(mappingsOf(withMapping(changed, '', { enabled: true })).at(-1)?.mapping.enabled).toBe(true);
});

it('shows a definition without what the node writes, and says what is wrong with one', () => {
  expect(JSON.parse(editable({ name: 'i', uuid: 'u', sourceUUID: 's', type: 't' }))).toEqual({ type: 't' });
  expect(read('{"a":1}').definition).toEqual({ a: 1 });
  expect([read('[]').problem, read('{').problem !== '']).toEqual(['The definition must be a JSON object.', true]);
});
