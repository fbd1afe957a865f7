// Search indexes and search queries with the official Node SDK.
//
//     NODE_PATH=…/node_modules node search.cjs couchbase://127.0.0.1 Administrator password default
//
// Prints a line for each step; the exit code is 1 if any failed.
'use strict'

const assert = require('node:assert')
const couchbase = require('couchbase')
const { bucketName, run } = require('./steps.cjs')

const { SearchQuery, SearchRequest, VectorQuery, VectorSearch } = couchbase

const documents = {
  one: { title: 'Black pearl of the deep', size: 3, shade: [0, 0, 0] },
  two: { title: 'White pearl', size: 5, shade: [9, 9, 9] },
  three: { title: 'Empty oyster', size: 8, shade: [5, 5, 4] },
}

const steps = {
  async 'a query sees the writes that it names'({ scope, name, shells }) {
    const stored = []
    for (const [key, value] of Object.entries(documents)) stored.push((await shells.upsert(key, value)).token)
    const state = new couchbase.MutationState(...stored)
    const request = SearchRequest.create(SearchQuery.match('pearl').field('title'))
    const { rows, meta } = await scope.search(name, request, { consistentWith: state, sort: ['size'] })
    assert.deepEqual(rows.map((row) => row.id), ['one', 'two'])
    assert.equal(meta.metrics.total_rows, 2)
    assert.ok(rows.every((row) => row.score > 0))
  },

  async 'rows have fields, fragments, locations and an explanation'({ scope, name }) {
    const request = SearchRequest.create(SearchQuery.term('oyster').field('title'))
    const { rows } = await scope.search(name, request, {
      fields: ['title'],
      includeLocations: true,
      explain: true,
      highlight: { style: couchbase.HighlightStyle.HTML, fields: ['title'] },
    })
    assert.equal(rows.length, 1)
    assert.equal(rows[0].fields.title, 'Empty oyster')
    assert.deepEqual(rows[0].fragments.title, ['Empty <mark>oyster</mark>'])
    assert.ok(rows[0].explanation.value > 0)
    assert.ok(rows[0].locations.length > 0 || Object.keys(rows[0].locations).length > 0)
  },

  async 'scores can be left out'({ scope, name }) {
    const request = SearchRequest.create(SearchQuery.matchAll())
    const { rows } = await scope.search(name, request, { disableScoring: true })
    assert.equal(rows.length, 3)
    assert.ok(rows.every((row) => row.score === 0))
  },

  async 'facets are counted'({ scope, name }) {
    const facets = { words: couchbase.SearchFacet.term('title', 1) }
    const request = SearchRequest.create(SearchQuery.matchAll())
    const { meta } = await scope.search(name, request, { facets })
    assert.ok(JSON.stringify(meta.facets).includes('pearl'))
  },

  async 'nearest vectors are found, alone and beside words'({ scope, name }) {
    const near = VectorSearch.fromVectorQuery(VectorQuery.create('shade', [9, 9, 8]).numCandidates(1))
    const { rows } = await scope.search(name, SearchRequest.create(near))
    assert.deepEqual(rows.map((row) => row.id), ['two'])
    const words = SearchQuery.term('oyster').field('title')
    const both = await scope.search(name, SearchRequest.create(words).withVectorSearch(near), { limit: 2 })
    assert.deepEqual(both.rows.map((row) => row.id).sort(), ['three', 'two'])
  },

  async 'indexes are listed, counted and dropped'({ scope, name }) {
    const indexes = scope.searchIndexes()
    assert.deepEqual((await indexes.getAllIndexes()).map((index) => index.name), [name])
    assert.equal(await indexes.getIndexedDocumentsCount(name), 3)
    await indexes.pauseIngest(name)
    await indexes.resumeIngest(name)
    await indexes.dropIndex(name)
    await assert.rejects(indexes.dropIndex(name), couchbase.SearchIndexNotFoundError ?? couchbase.IndexNotFoundError)
  },
}

/** Creates a scope of this run with a collection and its index. */
async function setUp(cluster) {
  const collections = cluster.bucket(bucketName).collections()
  const scopeName = `node-search-${Date.now()}`
  await collections.createScope(scopeName)
  await collections.createCollection('shells', scopeName)
  const scope = cluster.bucket(bucketName).scope(scopeName)
  const name = 'shells'
  const shade = { fields: [{ name: 'shade', type: 'vector', dims: 3, similarity: 'l2_norm', index: true, store: true }] }
  const type = { enabled: true, dynamic: true, properties: { shade } }
  const mapping = { default_mapping: { enabled: false }, types: { [`${scopeName}.shells`]: type }, store_dynamic: true }
  await scope.searchIndexes().upsertIndex({
    name,
    type: 'fulltext-index',
    sourceType: 'couchbase',
    sourceName: bucketName,
    params: { doc_config: { mode: 'scope.collection.docid_prefix', docid_prefix_delim: '_' }, mapping },
  })
  return { cluster, scope, name, shells: scope.collection('shells'), tidy: () => collections.dropScope(scopeName) }
}

run(steps, setUp)
