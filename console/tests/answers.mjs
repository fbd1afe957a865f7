// Answers of a node, made up: every name and value tries to become markup, and numbers do not fit into JavaScript's.

export const XSS = `<img src=x onerror="window.__hacked=1">"'\`${'${1}'}`;
const NODE = '127.0.0.1:8091';
const now = () => Math.floor(Date.now() / 1000);

const BUCKETS = ['travel', 'orders', XSS];
const bucket = (name, index) => ({
  name,
  uuid: `${index}`.padStart(32, '0'),
  bucketType: index === 2 ? 'ephemeral' : 'membase',
  numVBuckets: 1024,
  replicaNumber: 1,
  storageBackend: 'magma',
  evictionPolicy: 'fullEviction',
  conflictResolutionType: 'seqno',
  durabilityMinLevel: 'none',
  maxTTL: 0,
  compressionMode: 'passive',
  quota: { ram: 536870912 * 3, rawRAM: 536870912 },
  basicStats: { itemCount: 63_288 * (index + 1), memUsed: 180_000_000 * (index + 1), quotaPercentUsed: 11.2 * (index + 3), diskUsed: 91_000_000 },
  controllers: { flush: '/flush' },
  vBucketServerMap: {
    serverList: [NODE, '127.0.0.2:8091', '127.0.0.3:8091'],
    vBucketMap: Array.from({ length: 1024 }, (_, vbid) => [Math.floor((vbid * 3) / 1024), (Math.floor((vbid * 3) / 1024) + 1 + (vbid % 2)) % 3]),
  },
});
const manifest = {
  uid: '7',
  scopes: [
    { name: '_default', uid: '0', collections: [{ name: '_default', uid: '0' }] },
    { name: 'inventory', uid: '8', collections: [{ name: 'airline', uid: '8' }, { name: 'hotel', uid: '9', maxTTL: 3600 }, { name: XSS, uid: 'a' }] },
  ],
};
const BIG = '9007199254740993';
const documents = Array.from({ length: 30 }, (_, index) => ({
  id: index === 0 ? XSS : `airline_${index + 10}`,
  cas: '1764340000000000001',
  expiration: 0,
  flags: 33554432,
  bytes: 300 + index,
  isJson: index !== 5,
  head: index === 0 ? `{"name": ${JSON.stringify(XSS)}}` : `{"id":${index},"type":"airline","name":"Forty-Mile Air","iata":"Q5","country":"United States","number":${BIG}}`,
}));

const plan = {
  '#operator': 'Sequence',
  '~children': [
    { '#operator': 'IndexScan3', index: 'def_city', keyspace: 'hotel', as: 'h', spans: [{}, {}] },
    { '#operator': 'Fetch', keyspace: 'hotel', as: 'h' },
    { '#operator': 'HashJoin', on_clause: 'h.city = a.city', '~child': { '#operator': 'Sequence', '~children': [{ '#operator': 'PrimaryScan3', index: '#primary', keyspace: 'airport' }, { '#operator': 'Fetch', keyspace: 'airport', as: 'a' }] } },
    { '#operator': 'Filter', condition: `h.name like "${XSS}"` },
    { '#operator': 'InitialProject' },
    { '#operator': 'Limit', expr: '20' },
  ],
};

/** An index of search, as it is stored. */
const searchIndex = (uuid) => ({
  type: 'fulltext-index',
  name: 'hotels',
  uuid,
  sourceType: 'gocbcore',
  sourceName: 'travel',
  sourceUUID: '1',
  planParams: { indexPartitions: 1 },
  params: {
    doc_config: { mode: 'scope.collection.type_field', type_field: 'type' },
    mapping: {
      default_analyzer: 'en',
      default_mapping: { enabled: false },
      types: { 'inventory.hotel': { enabled: true, dynamic: true, properties: { [XSS]: { enabled: true, dynamic: false, fields: [{ name: XSS, type: 'text', index: true }] }, geo: { enabled: true, dynamic: false, fields: [{ name: 'geo', type: 'geopoint', index: true }] } } } },
    },
  },
});
const searchAnswer = (request) => ({
  status: { total: 1, failed: 1, successful: 0, errors: { [XSS]: `late ${XSS}` } },
  hits: request.from
    ? []
    : [
        { index: 'hotels_1', id: XSS, score: 1.234567, fragments: { plot: ['a &lt;b&gt; <mark>strangers</mark> <img src=x onerror="window.__hacked=1">'] }, fields: { title: XSS, year: 1995 }, ...(request.explain ? { explanation: { value: 1.2, message: `sum of: ${XSS}`, children: [{ value: 0.7, message: 'weight' }] } } : {}) },
        { index: 'hotels_1', id: 'hotel_2', score: 0.5 },
      ],
  total_hits: 25,
  max_score: 1.234567,
  took: 1_234_567,
  facets: request.facets ? { country: { field: 'country', total: 12, missing: 3, other: 2, terms: [{ term: XSS, count: 9 }, { term: 'france', count: 1 }] } } : null,
});
const reference = { uuid: 'u1', name: XSS, uri: '/x', hostname: '10.0.2.1:8091', username: 'ann', secureType: 'none', connectivityStatus: 'RC_OK', deleted: false };
const replicationId = 'u1/travel/copy';
const replication = { type: 'xdcr', id: replicationId, source: 'travel', target: '/remoteClusters/u1/buckets/copy', status: 'running', pauseRequested: false, changesLeft: 4200, docsChecked: 3, docsWritten: 60_000, errors: [`2026-11-28 12:00:00 put aside ${XSS}`], stuckDocuments: 2 };
const replicationInfo = { Id: replicationId, StatsMap: { changes_left: 4200, docs_written: 60_000, docs_processed: 63_000, docs_filtered: 5, docs_failed_cr_source: 7, docs_failed_cr_target: 1 }, ErrorList: [] };
const replicationSettings = { type: 'xmem', checkpointInterval: 600, priority: 'High', compressionType: 'Auto', filterDeletion: false, filterExpression: '', pauseRequested: false, statsInterval: 1000, collectionsExplicitMapping: false, colMappingRules: { [XSS]: 'a.b' } };

/** A crash that was recorded: the change is too large to be in it. */
const base64 = (text) => Buffer.from(text).toString('base64');
const capsule = {
  plugin: 'audit', plugin_version: '1.2.0', keyspace: 'travel', limits: { memory_bytes: 67_108_864, deadline_ms: 50 },
  call: { handle: { request: { method: 'GET', path: '/by-mail', query: 'x=1', headers: [], body: base64(XSS), now_us: 1 } } },
  state: [[base64('seen/order_7'), base64('1')]], timers: [], answers: [{ found: { body: base64(`{"name": ${JSON.stringify(XSS)}}`), cas: 5, flags: 0, expiry: 0, is_json: true } }, { 'kv-error': { kind: 'not-found', message: XSS } }],
  reason: `unreachable ${XSS}`, is_whole: true,
};

/** What is measured in a second. */
export function measured(at = now(), buckets = BUCKETS) {
  const wave = (base, share, phase) => base * (1 + share * Math.sin(at / 7 + phase));
  const values = { cpu: wave(34, 0.3, 0), rss: 410_000_000, queries: wave(120, 0.4, 1), query_failures: 0, queries_active: 2, query_seconds: wave(0.9, 0.3, 2) };
  buckets.forEach((name, index) => {
    Object.assign(values, {
      [`reads:${name}`]: wave(5200 / (index + 1), 0.25, index),
      [`writes:${name}`]: wave(1900 / (index + 1), 0.35, index + 1),
      [`deletes:${name}`]: wave(140, 0.5, index),
      [`items:${name}`]: 63_288 * (index + 1) + (at % 600),
      [`memory:${name}`]: wave(180_000_000 * (index + 1), 0.03, index),
      [`quota:${name}`]: 536_870_912,
      [`disk:${name}`]: 91_000_000,
      [`mutations:${name}`]: wave(2040 / (index + 1), 0.3, index),
      [`disk_queue:${name}`]: Math.max(0, wave(900, 0.9, index)),
    });
  });
  for (const [name, lag] of [['index def_city on travel.inventory.hotel', 0], ['travel/dev_hotels', 12], ['eventing:enrich', 4800], [XSS, 3]])
    Object.assign(values, { [`plugin_lag:${name}`]: lag, [`plugin_documents:${name}`]: wave(700, 0.2, lag), [`plugin_calls:${name}`]: wave(40, 0.2, lag), [`plugin_failures:${name}`]: 0, [`plugin_cpu:${name}`]: wave(3 + (lag % 7), 0.2, 1), [`plugin_memory:${name}`]: 12_000_000, [`plugin_state:${name}`]: 3_400_000, [`plugin_p99:${name}`]: 4.1 });
  return values;
}

function history(range, names) {
  const step = range <= 600 ? 1 : range <= 3600 ? 10 : range <= 86_400 ? 60 : 600;
  const count = Math.floor(range / step);
  const start = (Math.floor(now() / step) - count + 1) * step;
  const wanted = Object.keys(measured()).filter((name) => names.includes(name.split(':')[0]));
  const series = Object.fromEntries(wanted.map((name) => [name, Array.from({ length: count }, (_, index) => measured(start + index * step)[name])]));
  return { nodes: { [NODE]: { step, start, series } }, missing: [] };
}

const node = (hostname, index) => ({ hostname, otpNode: `n_${index}@${hostname.split(':')[0]}`, status: 'healthy', clusterMembership: index === 2 ? 'inactiveAdded' : 'active', services: ['kv', 'n1ql', 'index', 'eventing'], version: '7.6.0', thisNode: index === 0, systemStats: {}, interestingStats: { curr_items: 21_000 } });

/** The state of a made-up node: tests change it. */
export class Node {
  claimed = true;
  session = true;
  conflict = false;
  empty = false;
  forbidden = false;
  broken = false;
  /** Services that this node does not have, by their paths. */
  off = [];
  /** Paths whose requests are never answered. */
  held = [];
  /** Milliseconds that an answer takes, by path. */
  slow = {};
  uuid = 'aa';
  paused = false;
  /** Method of the request with which the session ends. */
  endsWith = '';
  requests = [];

  /** Answers a request: status and value, where a text is sent as it is. */
  answer(method, path, query, body) {
    this.requests.push(`${method} ${path}`);
    if (this.endsWith === method && this.session) [this.session, this.endsWith] = [false, ''];
    if (path === '/uilogin') return this.login(body);
    if (path === '/uilogout') return ((this.session = false), [200, '']);
    if (path === '/pools' && !this.session) return [200, { claimed: this.claimed, pools: [] }];
    if (path === '/settings/web' && method === 'POST') return ((this.claimed = true), [200, {}]);
    if (!this.session) return [401, { error: 'unauthorized', reason: 'log in with a user and a password' }];
    if (path === '/pools') return [200, { claimed: true, pools: [{}], componentsVersion: { nacre: '0.1.0' } }];
    if (path === '/whoami') return [200, { id: 'Administrator', name: XSS, domain: 'admin', roles: this.forbidden ? [] : [{ role: 'admin' }] }];
    if (path === '/pools/default/checkPermissions') return [200, Object.fromEntries(body.split(',').map((one) => [one, !this.forbidden]))];
    if (this.forbidden) return [403, { message: 'Forbidden. User needs one of the following permissions', permissions: ['ReadCluster'] }];
    if (this.off.some((service) => path.startsWith(service))) return [404, 'Requested resource not found.'];
    if (this.broken) return [500, { errors: { _: `broken ${XSS}` } }];
    return this.read(method, path, query, body);
  }

  login(body) {
    const fields = new URLSearchParams(body);
    if (fields.get('password') !== 'password') return [400, { error: 'wrong_login', reason: 'the user or the password is wrong' }];
    this.session = true;
    return [200, ''];
  }

  read(method, path, query, body) {
    const some = (list) => (this.empty ? [] : list);
    const docs = /\/docs(?:\/(.+))?$/.exec(path);
    if (docs) return this.documents(method, docs[1] && decodeURIComponent(docs[1]), body);
    switch (path) {
      case '/pools/default':
        return [200, { clusterName: XSS, nodes: ['127.0.0.1:8091', '127.0.0.2:8091', '127.0.0.3:8091'].map(node), balanced: true, rebalanceStatus: 'none' }];
      case '/pools/default/tasks':
        return [200, some([{ type: 'rebalance', status: 'running', progress: 42.5, perNode: { 'n_0@127.0.0.1': { progress: 61 }, 'n_2@127.0.0.3': { progress: 24 } } }, { ...replication, pauseRequested: this.paused, status: this.paused ? 'paused' : 'running' }])];
      case '/pools/default/buckets':
        return method === 'POST' ? [400, { errors: { name: `Bucket ${XSS} exists.` } }] : [200, some(BUCKETS.map(bucket))];
      case '/_nacre/series':
        return [200, history(Number(query.get('range')), query.get('names').split(','))];
      case '/_p/query/query/service': {
        const { statement } = JSON.parse(body);
        this.stated = body;
        if (statement.startsWith('EXPLAIN')) return [200, { status: 'success', results: [{ plan }], metrics: { elapsedTime: '1.2ms' } }];
        if (statement.includes('WRONG')) return [400, { status: 'fatal', errors: [{ code: 3000, msg: `syntax error - line 1, column 8, near '${XSS}'` }] }];
        const rows = Array.from({ length: 2000 }, (_, index) => `{"id":"hotel_${index}","name":${JSON.stringify(index === 0 ? XSS : `Hotel ${index}`)},"big":${BIG},"city":"Medway","reviews":[{"stars":4}],"free_breakfast":true}`);
        return [200, `{"status":"success","results":[${rows.join(',')}],"metrics":{"elapsedTime":"12.481ms","resultCount":2000,"resultSize":190000},"profile":{"phaseTimes":{"parse":"180µs","plan":"420µs","run":"11.881ms"},"phaseCounts":{"output":2000,"sort":40},"executionTimings":${JSON.stringify(plan)}}}`];
      }
      case '/_p/query/admin/active_requests':
        return [200, some(this.stopped ? [] : [{ requestId: 'r/1', statement: `SELECT ${XSS}`, users: XSS, state: 'running', startedMs: 1_764_340_000_000, elapsedTime: '83000ms' }])];
      case '/_p/query/admin/active_requests/r%2F1':
        return ((this.stopped = true), [200, '']);
      case '/_p/query/admin/completed_requests':
        return [200, some([{ requestId: 'r2', statement: 'SELECT COUNT(*) FROM travel', users: 'ann', state: 'completed', startedMs: 1_764_340_000_000, elapsedTime: '1m2.5s', resultCount: 1, errorCount: 0 }, { requestId: 'r3', preparedName: XSS, users: 'ann', state: 'fatal', startedMs: 1_764_340_100_000, elapsedTime: '2s', errorCount: 1 }])];
      case '/_p/cbas/analytics/service': {
        const { statement } = JSON.parse(body);
        if (statement.startsWith('EXPLAIN')) return [200, { status: 'success', results: [{ engine: 'rows', reason: XSS }] }];
        return [200, { status: 'success', results: statement.includes('Metadata') ? [{ scope: 'Default', name: 'orders' }, { scope: 'Default', name: XSS }] : [{ country: XSS, revenue: 12.5 }, { country: 'Norway', revenue: 7 }], metrics: { elapsedTime: '8ms' } }];
      }
      case '/_p/cbas/analytics/status/ingestion':
        return [200, { links: some([{ name: 'Local', scope: 'Default', status: 'unhealthy', reason: XSS, state: [{ progress: 0.4, itemsProcessed: 4000, seqnoAdvances: 6000, scopes: [{ name: 'Default', collections: [{ name: 'orders' }] }] }] }]) }];
      case '/_p/cbas/analytics/admin/active_requests':
      case '/_p/cbas/analytics/admin/completed_requests':
        return [200, some([{ clientContextID: 'c1', statement: 'SELECT 1', state: 'running', elapsedTime: 0.5 }])];
      case '/indexStatus':
        return [200, { indexes: some([{ id: 'u1', name: 'def_city', bucket: 'travel', scope: 'inventory', collection: 'hotel', definition: 'CREATE INDEX `def_city` ON `travel`(`city`)', isPrimary: false, secExprs: ['`city`'], where: '', status: 'Ready', progress: 100, hosts: [NODE], partitioned: false, numPartition: 1 }, { id: 'u2', name: XSS, bucket: 'travel', scope: 'inventory', collection: 'hotel', definition: '', isPrimary: true, secExprs: [], where: XSS, status: 'Building', progress: 40, hosts: [NODE], partitioned: true, numPartition: 8 }]) }];
      case '/deployments':
        return [200, some([{ name: 'orders-audit', package: 'audit', version: '1.2.0', state: 'running' }, { name: XSS, package: 'x', version: '1', state: 'failed', reason: XSS }])];
      case '/plugins':
        return [200, some([{ name: 'audit', version: '1.2.0', digest: 'abcdef0123456789', manifest: { description: XSS, capabilities: { kv: { read: ['orders.all'] }, 'http-out': [XSS] } } }])];
      case '/_p/event/api/v1/status':
        return [200, { apps: some([{ name: 'enrich', composite_status: 'deployed', function_scope: { bucket: '*', scope: '*' } }, { name: 'clean', composite_status: 'paused', function_scope: { bucket: 'travel', scope: 'inventory' }, reason: XSS }]) }];
      case '/_p/event/api/v1/functions':
        return [200, some([{ appname: 'enrich', appcode: '', depcfg: { source_bucket: 'orders' }, settings: {}, function_scope: { bucket: '*', scope: '*' } }])];
      case '/_p/event/api/v1/functions/enrich':
        return [200, { appname: 'enrich', appcode: "function OnUpdate(doc, meta) {\n  if (doc.type !== 'order') return;\n  doc.total = doc.lines.reduce((sum, line) => sum + line.price, 0);\n  db[meta.id] = doc;\n  log('totalled', meta.id);\n}\n", depcfg: { source_bucket: 'orders' }, settings: {} }];
      case '/_p/event/api/v1/functions/enrich/dryrun':
        return this.dryRun(JSON.parse(body));
      case '/couchBase/travel/_preview':
        return this.preview(JSON.parse(body));
      case '/_p/fts/api/index':
        return [200, { status: 'ok', indexDefs: { uuid: 'u', implVersion: '5.8.0', indexDefs: this.empty ? null : { 'travel.inventory.hotels': searchIndex(this.uuid), [XSS]: { type: 'fulltext-alias', name: XSS, uuid: 'b', params: { targets: { 'travel.inventory.hotels': {} } } } } } }];
      case '/_p/fts/api/nsstats':
        return [200, { 'travel:travel.inventory.hotels:doc_count': 917, 'travel:travel.inventory.hotels:num_mutations_to_index': 3, 'travel:travel.inventory.hotels:num_bytes_used_disk': 1_200_000, total_queries: 4 }];
      case '/pools/default/remoteClusters':
        return method === 'POST' ? [400, { hostname: `Could not connect ${XSS}` }] : [200, some([reference])];
      case '/pools/default/replicationInfos':
        return [200, some([replicationInfo])];
      case '/controller/createReplication':
        return [400, { errors: { toBucket: `Bucket doesn't exist ${XSS}` } }];
      case '/settings/replications':
        return [200, replicationSettings];
      case '/settings/autoCompaction':
        return [200, { purgeInterval: 3, autoCompactionSettings: {} }];
      case '/_p/event/getAppLog':
        return [200, `2026-11-28T12:00:01Z totalled order_7\n2026-11-28T12:00:02Z ${XSS}\n`];
      case '/api/v1/tokens':
        if (method === 'POST') return body.includes('nonsense') ? [400, { type: 'about:blank', title: 'Bad Request', status: 400, code: 'invalid', detail: `scopes: nonsense ${XSS}` }] : ((this.stored = body), [201, { id: 't2', token: `nacre_${XSS}` }]);
        return [200, { tokens: some([{ id: 't1', name: XSS, scopes: ['data_reader[orders]', XSS], created: 1_764_340_000, expires: 1_774_340_000 }, { id: 't3', name: 'ci', scopes: null, created: 1_764_340_000, expires: 1_774_340_000 }]) }];
      case '/settings/rbac/users':
        return [200, some([{ id: 'till', name: 'Point of sale', domain: 'local', roles: [{ role: 'data_writer', bucket_name: 'orders' }, { role: 'query_select', bucket_name: 'orders', scope_name: 's', collection_name: 'c' }], groups: ['tills'], password_change_date: '2026-10-01T08:00:00Z' }, { id: XSS, domain: 'local', roles: [], name: XSS }])];
      case '/settings/rbac/groups':
        return [200, some([{ id: 'tills', description: XSS, roles: [{ role: 'data_reader', bucket_name: '*' }] }])];
      case '/settings/rbac/roles':
        return [200, [{ role: 'admin', name: 'Full Admin', desc: 'May do everything.' }, { role: 'data_reader', name: 'Data Reader', desc: 'Reads documents.', bucket_name: '*' }]];
      case '/pools/default/certificates':
      case '/pools/default/trustedCAs':
        return [200, some([{ subject: `CN=${XSS}`, node: NODE, expires: '2027-01-01T00:00:00Z' }])];
      case '/events':
        return [200, { events: some([{ timestamp: '2026-11-28T11:58:00.120Z', uuid: '1', event_id: 8193, component: 'data', severity: 'info', description: 'Bucket created', node: NODE, extra_attributes: { bucket: 'travel' } }, { timestamp: '2026-11-28T11:59:00.120Z', uuid: '2', event_id: 4, component: 'ns_server', severity: 'error', description: 'Node failed over', node: NODE, extra_attributes: { node: XSS } }]) }];
      case '/api/v1/slow-operations':
        return [200, { counts: { kv: 1 }, operations: some([{ service: 'kv', operation: 'Get', bucket: 'travel', ms: 812, spent: [{ on: 'read from disk', ms: 800 }, { on: 'processor or locks', ms: 12 }], ended: '2026-11-28T11:59:00Z', target: XSS, user: XSS }, { service: 'query', operation: 'statement', bucket: '', ms: 61_000, spent: [], ended: '2026-11-28T11:58:00Z' }]) }];
      case '/settings/autoFailover':
        return [200, { enabled: true, timeout: 120, maxCount: 1, count: 0 }];
      case '/settings/rebalance':
        return [200, { rebalanceMovesPerNode: 4 }];
      case '/settings/retryRebalance':
        return [200, { enabled: false, afterTimePeriod: 300, maxAttempts: 1 }];
      case '/settings/security':
        return [200, { tlsMinVersion: 'tlsv1.2', honorCipherOrder: true, disableUIOverHttp: false, disableUIOverHttps: false, cipherSuites: [], responseHeaders: {} }];
      case '/settings/passwordPolicy':
        return [200, { minLength: 6, enforceUppercase: false, enforceDigits: false }];
      case '/couchBase/travel/_design/dev_hotels/_view/by_city':
        return [200, { total_rows: 917, rows: [{ id: 'hotel_1', key: XSS, value: null }, { id: 'hotel_2', key: ['Medway', 4], value: 1 }] }];
      default:
    }
    const search = /^\/_p\/fts\/api\/bucket\/travel\/scope\/inventory\/index\/hotels(?:\/(.+))?$/.exec(path);
    if (search) return this.search(method, search[1] ?? '', body);
    if (path === `/settings/replications/${encodeURIComponent(replicationId)}`) {
      this.paused = new URLSearchParams(body).get('pauseRequested') === 'true' || (body === '' && this.paused);
      this.rules = new URLSearchParams(body).get('colMappingRules') ?? this.rules;
      return [200, replicationSettings];
    }
    if (path.endsWith('/scopes')) return [200, manifest];
    if (path.endsWith('/ddocs')) return [200, { rows: some([{ doc: { meta: { id: '_design/dev_hotels' }, json: { views: { by_city: { map: 'function (doc, meta) {\n  if (doc.city) emit([doc.city, doc.stars], 1);\n}', reduce: '_count' } } } } }]) }];
    if (path.endsWith('/capsules/c1')) return [200, capsule];
    if (path.endsWith('/profile')) return [200, `on_batch;parse;${XSS.replace(/\s/g, '')} 40\non_batch;emit 10\n`];
    if (path.endsWith('/capsules')) return [200, some([{ id: 'c1', reason: `unreachable ${XSS}`, is_whole: true }])];
    if (/^\/couchBase\/[^/]+\/_design\//.test(path)) return method === 'PUT' ? [201, { ok: true }] : [200, {}];
    if (path.startsWith('/deployments/')) {
      const name = decodeURIComponent(path.slice(13));
      if (method === 'PUT') return ((this.deployed = body), [200, {}]);
      return ['orders-audit', 'audit'].includes(name) ? [200, { name, package: 'audit', version: '1.2.0', world: 'service', state: 'running', owner: 'Administrator', lag: 0, documents: 120, document_errors: 1, last_errors: [{ id: XSS, vbucket: 7, seqno: 9, reason: XSS }], log: [{ level: 'warn', message: XSS }], grants: { kv: { write: ['*'] } }, config: {} }] : [404, { errors: { _: `there is no deployment ${name}` } }];
    }
    const found = /^\/pools\/default\/buckets\/([^/]+)$/.exec(path);
    if (found && method === 'POST') return body.includes('ramQuota=100') ? [400, { errors: { ramQuota: `too small ${XSS}` } }] : ((this.stored = body), [200, '']);
    if (found) return [200, bucket(decodeURIComponent(found[1]), 0)];
    return method === 'GET' ? [404, 'Requested resource not found.'] : [200, ''];
  }

  search(method, below, body) {
    if (below === 'query') return [200, searchAnswer(JSON.parse(body))];
    if (below === 'status') return [200, { status: 'ok', indexStatus: 'InProgress' }];
    if (below === 'analyzeDoc') return [200, { status: 'ok', analyzed: [{ stranger: { Term: 'eA==', Locations: [{ Field: 'title', Position: 1 }] }, [XSS]: { Locations: [{ Field: 'title', Position: 2 }] } }] }];
    if (method !== 'PUT') return [200, { status: 'ok' }];
    const { uuid } = JSON.parse(body);
    if (uuid !== '*' && uuid !== this.uuid) return [400, { status: 'fail', error: `perhaps there was concurrent index definition update, current index UUID: ${this.uuid}, did not match input UUID: ${uuid}`, request: {} }];
    this.uuid = `${this.uuid}a`;
    this.stored = body;
    return [200, { status: 'ok', name: 'travel.inventory.hotels', uuid: this.uuid }];
  }

  /** As the node does, which refuses members that it does not know. */
  dryRun({ function: tried, documents, last, ...unknown }) {
    if (Object.keys(unknown).length || typeof tried?.appcode !== 'string' || (documents && last)) return [400, { name: 'ERR_REQUEST_BODY', code: 1, description: 'the body' }];
    return [200, { complete: true, documents: [{ id: documents?.[0] ?? 'order_7', vb: 1, seq: 2, outcome: 'OnUpdate', steps: 10_000, writes: [{ keyspace: '_default.totals', id: XSS, operation: 'store', doc: { total: 12.5, name: XSS } }], timers: [{ callback: 'Remind', reference: XSS, due_ms: 1_900_000_000_000 }], log: [XSS] }, { id: 'order_8', outcome: 'missing', error: XSS }] }];
  }

  preview({ design, view, documents, ...unknown }) {
    if (Object.keys(unknown).some((name) => name !== 'group_level')) return [400, { error: 'bad_request', reason: 'unknown member' }];
    const { map, reduce } = design.views[view];
    if (map.includes('WRONG')) return [400, { error: 'invalid_design_document', reason: `SyntaxError ${XSS} (line 2, column 3)` }];
    const emitted = { total_rows: 2, rows: [{ id: documents?.[0] ?? 'hotel_1', key: XSS, value: 9 }, { id: 'hotel_2', key: [map.length], value: null }] };
    return [200, { about: { read: 20, us_per_document: map.length, errors: [{ id: XSS, message: XSS }], log: [XSS], complete: false }, emitted, reduced: reduce ? { rows: [{ key: null, value: 917 }] } : null }];
  }

  documents(method, id, body) {
    if (!id) return [200, { rows: this.empty ? [] : documents, next: null, count: this.empty ? 0 : documents.length, sorted: true }];
    const found = (cas, name) => ({ meta: { id, cas, expiration: 0, flags: 33554432 }, json: `{"name": ${JSON.stringify(name)}, "big": ${BIG}, "city": "Medway"}` });
    if (method === 'GET') return [200, found('1764340000000000001', XSS)];
    if (this.conflict && new URLSearchParams(body).get('cas') === '1764340000000000001') return [409, { errors: { cas: 'the document has changed' }, now: found('1764340000000000002', 'theirs') }];
    this.stored = new URLSearchParams(body).get('value');
    return [200, { cas: '1764340000000000003' }];
  }
}
