// Search requests in the official package's form: how they are built and sent.

import * as couchbase from 'couchbase'

const { DateSearchFacet, GeoPoint, NumericSearchFacet, SearchQuery, SearchRequest, SearchSort, TermSearchFacet, VectorQuery, VectorSearch } =
  couchbase

const wire = (value) => JSON.parse(JSON.stringify(value))

export async function queries_of_text() {
  return [
    SearchQuery.match('hello').field('title').analyzer('en').fuzziness(1).prefixLength(2).boost(1.5),
    SearchQuery.matchPhrase('hello world').field('title').boost(2),
    SearchQuery.phrase(['hello', 'world']).field('title'),
    SearchQuery.term('exact').field('kind').fuzziness(1),
    SearchQuery.queryString('+a -b'),
    SearchQuery.regexp('a.*b').field('x'),
    SearchQuery.wildcard('a*').field('x'),
    SearchQuery.prefix('ab').field('x'),
  ].map(wire)
}

export async function queries_of_ranges() {
  return [
    SearchQuery.numericRange().min(1).max(2, true).field('n'),
    SearchQuery.dateRange().start('2020-01-01').end('2021-01-01').field('d').dateTimeParser('p'),
    SearchQuery.termRange().min('a', false).max('b', true).field('t'),
  ].map(wire)
}

export async function queries_of_queries() {
  const a = SearchQuery.term('a')
  const b = SearchQuery.term('b')
  return [
    SearchQuery.conjuncts(a, b),
    SearchQuery.disjuncts(a, b),
    SearchQuery.boolean().must(a).should(b).mustNot(SearchQuery.term('c')),
  ].map(wire)
}

export async function queries_of_others() {
  return [
    SearchQuery.docIds('a', 'b'),
    SearchQuery.booleanField(true).field('flag'),
    SearchQuery.matchAll(),
  ].map(wire)
}

export async function queries_of_places() {
  return [
    SearchQuery.geoDistance(1, 2, '10km').field('geo'),
    SearchQuery.geoBoundingBox(1, 2, 3, 4).field('geo'),
    SearchQuery.geoPolygon([[1, 2], [3, 4], [5, 6]]).field('geo'),
  ].map(wire)
}

export async function sorts() {
  return [
    SearchSort.score().descending(true),
    SearchSort.id(),
    SearchSort.field('f').type('auto').mode('min').missing('last').descending(false),
    SearchSort.geoDistance('geo', 1, 2).unit('km').descending(true),
  ].map(wire)
}

export async function facets() {
  return [
    new TermSearchFacet('kind', 5),
    new NumericSearchFacet('n', 5).addRange('low', 0, 10).addRange('high', 10),
    new DateSearchFacet('d', 5).addRange('old', '2000-01-01', '2010-01-01'),
  ].map(wire)
}

export async function vectors() {
  const query = new VectorQuery('embedding', [0.1, 0.2]).numCandidates(5).boost(1.5)
  return [wire(query), wire(VectorQuery.create('e', [1]))]
}

export async function requests_may_have_both(_) {
  const request = SearchRequest.create(SearchQuery.matchAll())
  request.withVectorSearch(VectorSearch.fromVectorQuery(new VectorQuery('e', [1])))
  return request instanceof SearchRequest
}

export async function requests_have_one_of_each({ fails }) {
  return await fails(
    (async () => SearchRequest.create(SearchQuery.matchAll()).withSearchQuery(SearchQuery.matchNone()))(),
  )
}

export async function vectors_are_not_empty({ fails }) {
  return await fails((async () => new VectorQuery('e', []))())
}

export async function an_unknown_index({ cluster, fails }) {
  const error = await fails(cluster.search('no_such_index', SearchRequest.create(SearchQuery.matchAll()), { timeout: 4000 }))
  return error !== null
}
