/** What searches are on the wire, and what comes back. */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'

import * as nacre from '../../src/index.js'
import { FakeNode } from './fake-node.js'

const { SearchFacet, SearchQuery, SearchRequest, SearchSort, VectorQuery, VectorSearch } = nacre

/** The JSON that something is sent as. */
function sent(part: unknown): unknown {
  return JSON.parse(JSON.stringify(part))
}

/** Asks a service that answers everything with `answer`; `asked` has paths and bodies. */
async function withSearch(
  [status, answer]: [number, string],
  body: (cluster: nacre.Cluster, asked: { path: string; body: any }[]) => Promise<void>,
): Promise<void> {
  const asked: { path: string; body: any }[] = []
  const server = createServer(async (request, response) => {
    let text = ''
    for await (const part of request) text += part
    asked.push({ path: request.url!, body: JSON.parse(text) })
    response.statusCode = status
    response.end(answer)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  try {
    await using node = await FakeNode.start()
    node.neighbours = [{ mgmt: port, fts: port }]
    await using cluster = await nacre.connect(node.url, 'user', 'password')
    await body(cluster, asked)
  } finally {
    server.close()
    server.closeAllConnections()
  }
}

const ANSWER = JSON.stringify({
  status: { total: 1, failed: 0, successful: 1 },
  total_hits: 2,
  hits: [
    { index: 'i', id: 'a', score: 1.5 },
    { index: 'i', id: 'b', score: 1 },
  ],
  facets: { f: { field: 'kind', total: 2 } },
})

test('each query is the JSON that the service knows', () => {
  const cases: [nacre.SearchQuery, unknown][] = [
    [
      SearchQuery.match('sea view').field('text').analyzer('en').fuzziness(1).prefixLength(2).boost(3),
      { match: 'sea view', field: 'text', analyzer: 'en', fuzziness: 1, prefix_length: 2, boost: 3 },
    ],
    [SearchQuery.match('a b').operator(nacre.MatchOperator.And), { match: 'a b', operator: 'and' }],
    [SearchQuery.matchPhrase('a b').field('t'), { match_phrase: 'a b', field: 't' }],
    [SearchQuery.phrase(['a', 'b']).field('t'), { terms: ['a', 'b'], field: 't' }],
    [SearchQuery.term('x').fuzziness(2).prefixLength(1), { term: 'x', fuzziness: 2, prefix_length: 1 }],
    [SearchQuery.prefix('x').field('t'), { prefix: 'x', field: 't' }],
    [SearchQuery.regexp('x.*'), { regexp: 'x.*' }],
    [SearchQuery.wildcard('x*'), { wildcard: 'x*' }],
    [SearchQuery.queryString('+a -b').boost(2), { query: '+a -b', boost: 2 }],
    [SearchQuery.docIds('a', 'b').addDocIds(['c']), { ids: ['a', 'b', 'c'] }],
    [SearchQuery.booleanField(false).field('open'), { bool: false, field: 'open' }],
    [SearchQuery.matchAll(), { match_all: null }],
    [SearchQuery.matchNone(), { match_none: null }],
    [SearchQuery.numericRange().min(1, false).max(2), { min: 1, inclusive_min: false, max: 2, inclusive_max: false }],
    [
      SearchQuery.dateRange().start(new Date(0)).end('2026-01-01', true).dateTimeParser('p'),
      { start: '1970-01-01T00:00:00.000Z', inclusive_start: true, end: '2026-01-01', inclusive_end: true, datetime_parser: 'p' },
    ],
    [SearchQuery.termRange().min('a').max('b', true), { min: 'a', inclusive_min: true, max: 'b', inclusive_max: true }],
    [SearchQuery.geoDistance(1, 2, '10km').field('geo'), { location: [1, 2], distance: '10km', field: 'geo' }],
    [SearchQuery.geoBoundingBox(1, 2, 3, 0), { top_left: [1, 2], bottom_right: [3, 0] }],
    [
      SearchQuery.geoPolygon([[1, 2], { lon: 3, lat: 4 }, { longitude: 5, latitude: 6 }]),
      { polygon_points: [[1, 2], [3, 4], [5, 6]] }, // prettier-ignore
    ],
    [
      SearchQuery.conjuncts(SearchQuery.term('a')).and([SearchQuery.term('b')]),
      { conjuncts: [{ term: 'a' }, { term: 'b' }] },
    ],
    [
      SearchQuery.disjuncts([SearchQuery.term('a')]).or(SearchQuery.term('b')),
      { disjuncts: [{ term: 'a' }, { term: 'b' }] },
    ],
    [
      SearchQuery.boolean()
        .must(SearchQuery.conjuncts(SearchQuery.term('a')))
        .should(SearchQuery.disjuncts(SearchQuery.term('b'), SearchQuery.term('c')))
        .mustNot(SearchQuery.term('d') as any)
        .shouldMin(2),
      {
        must: { conjuncts: [{ term: 'a' }] },
        should: { disjuncts: [{ term: 'b' }, { term: 'c' }], min: 2 },
        must_not: { disjuncts: [{ term: 'd' }] },
      },
    ],
  ]
  for (const [query, json] of cases) assert.deepEqual(sent(query), json)
})

test('facets, the order of rows and vectors are the JSON that the service knows', () => {
  assert.deepEqual(sent(SearchFacet.term('kind', 5)), { field: 'kind', size: 5 })
  assert.deepEqual(sent(SearchFacet.numeric('n', 2).addRange('low', undefined, 3)), {
    field: 'n',
    size: 2,
    numeric_ranges: [{ name: 'low', max: 3 }],
  })
  assert.deepEqual(sent(SearchFacet.date('d', 2).addRange('old', undefined, new Date(0))), {
    field: 'd',
    size: 2,
    date_ranges: [{ name: 'old', end: '1970-01-01T00:00:00.000Z' }],
  })
  assert.deepEqual(sent(SearchSort.score().descending(true)), { by: 'score', desc: true })
  assert.deepEqual(sent(SearchSort.id()), { by: 'id' })
  assert.deepEqual(sent(SearchSort.field('f').type('number').mode('min').missing(true)), {
    by: 'field',
    field: 'f',
    type: 'number',
    mode: 'min',
    missing: 'first',
  })
  assert.deepEqual(sent(SearchSort.geoDistance('geo', 2, 1).unit('km')), {
    by: 'geo_distance',
    field: 'geo',
    location: [1, 2],
    unit: 'km',
  })
  const filter = SearchQuery.term('x')
  assert.deepEqual(sent(VectorQuery.create('v', [1, 2]).numCandidates(7).boost(2).prefilter(filter)), {
    field: 'v',
    k: 7,
    vector: [1, 2],
    boost: 2,
    filter: { term: 'x' },
  })
  assert.deepEqual(sent(new VectorQuery('v', 'AACAPw==')), { field: 'v', k: 3, vector_base64: 'AACAPw==' })
})

test('rows come one by one, and the rest of the answer is the meta data', () =>
  withSearch([200, ANSWER], async (cluster, asked) => {
    const request = SearchRequest.create(SearchQuery.term('x')).withVectorSearch(
      new VectorSearch([new VectorQuery('v', [1])], { vectorQueryCombination: nacre.VectorQueryCombination.AND }),
    )
    const { rows, meta } = await cluster.search('i', request, {
      skip: 1,
      limit: 2,
      fields: ['*'],
      facets: { f: SearchFacet.term('kind', 5) },
      sort: ['-_score'],
      highlight: { style: nacre.HighlightStyle.HTML, fields: ['t'] },
      disableScoring: true,
      timeout: 5000,
      raw: { more: 1 },
    })
    assert.deepEqual(rows.map(({ id }) => id), ['a', 'b'])
    assert.equal(meta['total_hits'], 2)
    assert.equal(meta['facets'].f.total, 2)
    assert.deepEqual(asked, [
      {
        path: '/api/index/i/query',
        body: {
          query: { term: 'x' },
          knn: [{ field: 'v', k: 3, vector: [1] }],
          knn_operator: 'and',
          size: 2,
          from: 1,
          fields: ['*'],
          score: 'none',
          showrequest: false,
          highlight: { style: 'html', fields: ['t'] },
          facets: { f: { field: 'kind', size: 5 } },
          sort: ['-_score'],
          ctl: { timeout: 5000 },
          more: 1,
        },
      },
    ])
    const ids = []
    const vectors = SearchRequest.create(VectorSearch.fromVectorQuery(new VectorQuery('v', [1])))
    for await (const { id } of cluster.bucket('b').scope('s s').search('i', vectors)) ids.push(id)
    assert.deepEqual(ids, ['a', 'b'])
    assert.equal(asked[1]!.path, '/api/bucket/b/scope/s%20s/index/i/query')
    assert.deepEqual(asked[1]!.body.query, { match_none: null })
  }))

test('a search waits for mutations by vBucket and branch', () =>
  withSearch([200, ANSWER], async (cluster, asked) => {
    const token = { bucketName: 'b', partitionId: 7, partitionUuid: 5n, sequenceNumber: 9n }
    await cluster.searchQuery('i', SearchQuery.matchAll(), { consistentWith: new nacre.MutationState(token) })
    assert.deepEqual(asked[0]!.body.ctl.consistency, { level: 'at_plus', vectors: { i: { '7/5': 9 } } })
  }))

test('what the service refuses has the class of its reason', async () => {
  const cases: [number, string, typeof nacre.CouchbaseError][] = [
    [400, 'rest_auth: index not found', nacre.IndexNotFoundError],
    [400, 'parse error', nacre.InvalidArgumentError],
    [404, 'Page not found', nacre.CouchbaseError],
    [429, 'num_queries_per_min', nacre.RateLimitedError],
    [429, 'num_fts_indexes', nacre.QuotaLimitedError],
    [500, 'broken', nacre.CouchbaseError],
  ]
  for (const [status, text, Kind] of cases) {
    await withSearch([status, text], async (cluster) => {
      const search = cluster.searchQuery('i', SearchQuery.matchAll())
      await assert.rejects(
        () => search.then(),
        (error: nacre.CouchbaseError) => error.constructor === Kind && String(error).includes(text),
      )
    })
  }
})

test('what cannot be sent is refused before', () =>
  withSearch([200, ANSWER], async (cluster, asked) => {
    const { InvalidArgumentError: Invalid } = nacre
    const request = SearchRequest.create(SearchQuery.matchAll())
    assert.throws(() => new VectorQuery('v', []), Invalid)
    assert.throws(() => new VectorQuery('v', [1]).numCandidates(0), Invalid)
    assert.throws(() => new VectorSearch([]), Invalid)
    assert.throws(() => SearchRequest.create({} as any), Invalid)
    assert.throws(() => request.withSearchQuery(SearchQuery.matchAll()), Invalid)
    assert.throws(() => cluster.search('', request), Invalid)
    assert.throws(() => cluster.search('i', {} as any), Invalid)
    assert.throws(() => cluster.search('i', request, { limits: 1 } as any), Invalid)
    assert.throws(() => SearchQuery.geoPolygon([{} as any]), Invalid)
    assert.deepEqual(asked, [])
  }))
