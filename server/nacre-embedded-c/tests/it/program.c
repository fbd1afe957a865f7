/* Calls everything in nacre.h once, and checks what it refuses. */

#include <nacre.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                   \
  do {                                                                                                     \
    if (!(condition)) {                                                                                    \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, nacre_error_message());                  \
      exit(1);                                                                                             \
    }                                                                                                      \
  } while (0)

static const uint8_t *bytes(const char *text) { return (const uint8_t *)text; }

static int put(const nacre_collection *docs, const char *key, const char *body) {
  return nacre_put(docs, NACRE_UPSERT, bytes(key), strlen(key), bytes(body), strlen(body), NULL, NULL);
}

static int has(const nacre_collection *docs, const char *key, const char *body) {
  nacre_document found = {.size = sizeof found};
  int status = nacre_get(docs, bytes(key), strlen(key), &found);
  int is_same = status == NACRE_OK && found.body_size == strlen(body) && memcmp(found.body, body, found.body_size) == 0;
  nacre_document_release(&found);
  nacre_document_release(&found);
  return is_same;
}

static void documents(nacre *db) {
  nacre_collection *docs;
  CHECK(nacre_collection_open(db, "shop.orders", &docs) == NACRE_OK);
  nacre_stored stored = {.size = sizeof stored};
  nacre_write write = {.size = sizeof write, .flags = 7, .expiry = 1000};
  CHECK(nacre_put(docs, NACRE_INSERT, bytes("a"), 1, bytes("{\"n\":1}"), 7, &write, &stored) == NACRE_OK);
  CHECK(stored.cas != 0 && stored.seqno > 0 && stored.vbucket < 16);
  CHECK(nacre_put(docs, NACRE_INSERT, bytes("a"), 1, bytes("2"), 1, NULL, NULL) == NACRE_EXISTS);
  CHECK(nacre_put(docs, 9, bytes("a"), 1, bytes("2"), 1, NULL, NULL) == NACRE_INVALID_ARGUMENT);
  CHECK(strstr(nacre_error_message(), "mode") != NULL);

  nacre_document found = {.size = sizeof found};
  CHECK(nacre_get(docs, bytes("a"), 1, &found) == NACRE_OK);
  CHECK(found.cas == stored.cas && found.flags == 7 && found.expiry > 0 && found.is_json && found.key_size == 1);
  nacre_write stale = {.size = sizeof stale, .cas = 1};
  CHECK(nacre_put(docs, NACRE_REPLACE, bytes("a"), 1, bytes("2"), 1, &stale, NULL) == NACRE_CAS_MISMATCH);
  nacre_write exact = {.size = sizeof exact, .cas = found.cas, .keep_expiry = 1, .durable = 1};
  CHECK(nacre_put(docs, NACRE_REPLACE, bytes("a"), 1, bytes("2"), 1, &exact, NULL) == NACRE_OK);
  CHECK(found.body_size == 7); /* What was read stays. */
  nacre_document_release(&found);
  CHECK(has(docs, "a", "2"));

  nacre_document wrong = {.size = 1};
  CHECK(nacre_get(docs, bytes("a"), 1, &wrong) == NACRE_INVALID_ARGUMENT);
  CHECK(nacre_get(docs, NULL, 3, &found) == NACRE_INVALID_ARGUMENT);
  CHECK(nacre_get(NULL, bytes("a"), 1, &found) == NACRE_INVALID_ARGUMENT);
  CHECK(nacre_get(docs, bytes("a"), 1, NULL) == NACRE_INVALID_ARGUMENT);
  CHECK(nacre_get(docs, bytes("none"), 4, &found) == NACRE_NOT_FOUND);

  int exists = -1;
  CHECK(nacre_exists(docs, bytes("a"), 1, &exists) == NACRE_OK && exists == 1);
  CHECK(nacre_exists(docs, bytes("none"), 4, &exists) == NACRE_OK && exists == 0);
  CHECK(nacre_touch(docs, bytes("a"), 1, 0) == NACRE_OK);

  uint64_t initial = 5, value = 0;
  CHECK(nacre_add(docs, bytes("n"), 1, 2, NULL, NULL, NULL, NULL) == NACRE_NOT_FOUND);
  CHECK(nacre_add(docs, bytes("n"), 1, 2, &initial, NULL, &value, NULL) == NACRE_OK && value == 5);
  CHECK(nacre_add(docs, bytes("n"), 1, -3, NULL, NULL, &value, &stored) == NACRE_OK && value == 2);
  CHECK(put(docs, "t", "b") == NACRE_OK);
  CHECK(nacre_append(docs, bytes("t"), 1, bytes("c"), 1, NULL, NULL) == NACRE_OK);
  CHECK(nacre_prepend(docs, bytes("t"), 1, bytes("a"), 1, NULL, NULL) == NACRE_OK);
  CHECK(has(docs, "t", "abc"));
  CHECK(nacre_add(docs, bytes("t"), 1, 1, NULL, NULL, NULL, NULL) == NACRE_NOT_A_NUMBER);

  CHECK(nacre_lock(docs, bytes("t"), 1, 15, &found) == NACRE_OK);
  CHECK(put(docs, "t", "x") == NACRE_LOCKED);
  CHECK(nacre_unlock(docs, bytes("t"), 1, found.cas) == NACRE_OK);
  CHECK(nacre_unlock(docs, bytes("t"), 1, found.cas) == NACRE_NOT_LOCKED);
  nacre_document_release(&found);
  CHECK(nacre_remove(docs, bytes("t"), 1, NULL, &stored) == NACRE_OK);
  CHECK(nacre_remove(docs, bytes("t"), 1, NULL, NULL) == NACRE_NOT_FOUND);
  nacre_collection_free(docs);
  nacre_collection_free(NULL);
}

static nacre_part part(int operation, unsigned flags, const char *path, const char *value) {
  nacre_part made = {.size = sizeof made, .operation = operation, .flags = flags, .path = bytes(path), .path_size = strlen(path)};
  made.value = bytes(value);
  made.value_size = strlen(value);
  return made;
}

static void parts(nacre *db) {
  nacre_collection *docs;
  CHECK(nacre_collection_open(db, NULL, &docs) == NACRE_OK);
  nacre_part changes[] = {
      part(NACRE_PART_UPSERT, NACRE_PART_XATTR | NACRE_PART_CREATE_PATH, "owner.name", "\"Ada\""),
      part(NACRE_PART_UPSERT, 0, "list", "[1]"),
      part(NACRE_PART_ARRAY_APPEND, 0, "list", "2,3"),
      part(NACRE_PART_COUNTER, NACRE_PART_CREATE_PATH, "n.count", "4"),
  };
  nacre_parts *results;
  CHECK(nacre_mutate_in(docs, NACRE_REPLACE, bytes("d"), 1, changes, 4, NULL, NULL, NULL) == NACRE_NOT_FOUND);
  CHECK(nacre_mutate_in(docs, NACRE_UPSERT, bytes("d"), 1, changes, 4, NULL, NULL, &results) == NACRE_OK);
  const uint8_t *value;
  size_t size;
  CHECK(nacre_parts_get(results, 0, &value, &size) == NACRE_NOTHING);
  CHECK(nacre_parts_get(results, 3, &value, &size) == NACRE_OK && size == 1 && value[0] == '4');
  CHECK(nacre_parts_get(results, 4, &value, &size) == NACRE_INVALID_ARGUMENT);
  nacre_parts_free(results);

  nacre_part reads[] = {
      part(NACRE_PART_GET, NACRE_PART_XATTR, "owner.name", ""),
      part(NACRE_PART_COUNT, 0, "list", ""),
      part(NACRE_PART_EXISTS, 0, "none", ""),
      part(NACRE_PART_DOCUMENT, 0, "", ""),
  };
  nacre_parts *found;
  CHECK(nacre_lookup_in(docs, bytes("d"), 1, reads, 4, &found) == NACRE_OK);
  CHECK(nacre_parts_cas(found) != 0);
  CHECK(nacre_parts_get(found, 0, &value, &size) == NACRE_OK && size == 5 && memcmp(value, "\"Ada\"", 5) == 0);
  CHECK(nacre_parts_get(found, 1, &value, &size) == NACRE_OK && size == 1 && value[0] == '3');
  CHECK(nacre_parts_get(found, 2, &value, &size) == NACRE_PATH);
  CHECK(strstr(nacre_error_message(), "path not found") != NULL);
  CHECK(nacre_parts_get(found, 3, &value, &size) == NACRE_OK && size > 10);
  nacre_parts_free(found);
  CHECK(nacre_lookup_in(docs, bytes("d"), 1, reads, 17, &found) == NACRE_INVALID_ARGUMENT && found == NULL);
  nacre_part failing = part(NACRE_PART_INSERT, 0, "list", "1");
  CHECK(nacre_mutate_in(docs, NACRE_REPLACE, bytes("d"), 1, &failing, 1, NULL, NULL, NULL) == NACRE_PATH);
  nacre_collection_free(docs);
}

static void scans(nacre *db) {
  nacre_collection *docs;
  CHECK(nacre_collection_open(db, "scans", &docs) == NACRE_OK);
  char key[16];
  for (int number = 0; number < 20; number++) {
    snprintf(key, sizeof key, "k%02d", number);
    CHECK(put(docs, key, "1") == NACRE_OK);
  }
  nacre_scan *scan;
  CHECK(nacre_scan_open(docs, bytes("k05"), 3, bytes("k10"), 3, &scan) == NACRE_OK);
  nacre_document document = {.size = sizeof document};
  int status, number = 5;
  while ((status = nacre_scan_next(scan, &document)) == NACRE_OK) {
    snprintf(key, sizeof key, "k%02d", number++);
    CHECK(document.key_size == 3 && memcmp(document.key, key, 3) == 0);
    nacre_document_release(&document);
  }
  CHECK(status == NACRE_NOTHING && number == 10);
  nacre_scan_free(scan);
  CHECK(nacre_scan_open(docs, NULL, 0, NULL, 0, &scan) == NACRE_OK);
  nacre_scan_free(scan);
  nacre_collection_free(docs);
}

static void listeners(nacre *db) {
  nacre_collection *docs;
  nacre_changes *changes, *gone_on;
  CHECK(nacre_collection_open(db, "heard", &docs) == NACRE_OK);
  int fd = nacre_wake_fd(db);
  CHECK(fd >= 0);
  CHECK(nacre_changes_open(db, docs, "now", &changes) == NACRE_OK);
  CHECK(nacre_wake_clear(db) == NACRE_OK);
  nacre_change change = {.size = sizeof change};
  CHECK(nacre_changes_next(changes, 0, &change) == NACRE_NOTHING);
  CHECK(put(docs, "a", "1") == NACRE_OK);
  struct pollfd wait = {.fd = fd, .events = POLLIN};
  CHECK(poll(&wait, 1, 5000) == 1);
  CHECK(nacre_wake_clear(db) == NACRE_OK);
  CHECK(nacre_changes_next(changes, 0, &change) == NACRE_OK);
  CHECK(change.kind == NACRE_WRITTEN && change.key_size == 1 && change.body_size == 1 && change.seqno > 0);
  CHECK(strcmp(change.collection, "_default.heard") == 0);
  nacre_change_release(&change);
  nacre_change_release(&change);
  nacre_buffer token = {0};
  CHECK(nacre_changes_token(changes, &token) == NACRE_OK);
  char text[4096] = {0};
  CHECK(token.size < sizeof text);
  memcpy(text, token.data, token.size);
  nacre_buffer_free(&token);
  nacre_buffer_free(&token);
  CHECK(nacre_remove(docs, bytes("a"), 1, NULL, NULL) == NACRE_OK);
  CHECK(nacre_changes_open(db, docs, text, &gone_on) == NACRE_OK);
  CHECK(nacre_changes_next(gone_on, 5000, &change) == NACRE_OK && change.kind == NACRE_REMOVED);
  nacre_change_release(&change);
  nacre_changes_free(gone_on);
  CHECK(nacre_changes_open(db, docs, "no token", &gone_on) == NACRE_INVALID_ARGUMENT && gone_on == NULL);
  nacre_changes_free(changes);
  nacre_collection_free(docs);
}

static void sessions(nacre *db) {
  nacre_session *session;
  CHECK(nacre_session_open(db, &session) == NACRE_OK);
  uint8_t noop[24] = {0x80, 0x0a};
  nacre_buffer responses = {0};
  CHECK(nacre_session_receive(session, noop, 10, &responses) == NACRE_OK && responses.size == 0);
  CHECK(nacre_session_receive(session, noop + 10, 14, &responses) == NACRE_OK && responses.size == 24);
  CHECK(responses.data[0] == 0x81 && responses.data[1] == 0x0a);
  nacre_buffer_free(&responses);
  CHECK(nacre_session_poll(session, &responses) == NACRE_OK && responses.size == 0);
  CHECK(nacre_session_receive(session, bytes("GET / HTTP/1.1\r\n\r\n GET / HTTP"), 28, &responses) == NACRE_SESSION_ENDED);
  nacre_buffer_free(&responses);
  CHECK(nacre_session_poll(session, &responses) == NACRE_SESSION_ENDED);
  nacre_session_free(session);
}

static void keyspaces(nacre *db) {
  CHECK(nacre_scope_create(db, "s") == NACRE_OK);
  CHECK(nacre_scope_create(db, "s") == NACRE_KEYSPACE_EXISTS);
  CHECK(nacre_collection_create(db, "s", "c", 60) == NACRE_OK);
  nacre_buffer names = {0};
  CHECK(nacre_collections(db, &names) == NACRE_OK && names.size > 2 && names.data[0] == '[');
  nacre_buffer_free(&names);
  int http = 0;
  const char *path = "/pools/default/buckets/default/scopes";
  CHECK(nacre_manage(db, "GET", path, NULL, 0, &http, &names) == NACRE_OK && http == 200);
  nacre_buffer_free(&names);
  CHECK(nacre_manage(db, "POST", path, bytes("name=s"), 6, &http, &names) == NACRE_OK && http == 400);
  nacre_buffer_free(&names);
  CHECK(nacre_collection_drop(db, "s", "c") == NACRE_OK);
  CHECK(nacre_collection_drop(db, "s", "c") == NACRE_COLLECTION_NOT_FOUND);
  CHECK(nacre_scope_drop(db, "s") == NACRE_OK);
  CHECK(nacre_scope_drop(db, "s") == NACRE_SCOPE_NOT_FOUND);
}

/* Nobody listens at the address: the database works, and sync reports its state. */
static void sync_without_a_network(nacre *db) {
  const char *away = "{\"url\":\"http://127.0.0.1:1/default\",\"user\":\"u\",\"password\":\"p\",\"collections\":[\"shop.orders\"]}";
  nacre_sync *sync, *other;
  nacre_buffer text;
  CHECK(nacre_sync_start(db, "{}", &sync) == NACRE_INVALID_ARGUMENT && sync == NULL);
  CHECK(nacre_sync_start(db, NULL, &sync) == NACRE_INVALID_ARGUMENT);
  CHECK(nacre_sync_start(db, away, &sync) == NACRE_OK);
  CHECK(nacre_sync_start(db, away, &other) != NACRE_OK && other == NULL);
  CHECK(strstr(nacre_error_message(), "runs already") != NULL);
  CHECK(nacre_sync_wait(sync, 10) == NACRE_NOTHING);
  CHECK(nacre_sync_retry(sync) == NACRE_OK);
  CHECK(nacre_sync_status(sync, &text) == NACRE_OK && text.size > 10);
  nacre_buffer_free(&text);
  CHECK(nacre_sync_next_event(sync, 10000, &text) == NACRE_OK && text.size > 10);
  nacre_buffer_free(&text);
  CHECK(nacre_sync_status(NULL, &text) == NACRE_INVALID_ARGUMENT);
  nacre_sync_free(sync);
  nacre_sync_free(NULL);
  CHECK(nacre_sync_start(db, away, &sync) == NACRE_OK);
  nacre_sync_free(sync);
}

static void encryption(const char *path) {
  const uint8_t key[32] = {7}, other[32] = {8};
  const uint8_t *word = bytes("open sesame");
  nacre *db;
  nacre_collection *docs;
  CHECK(nacre_open_with_key(path, NULL, NACRE_KEY_BYTES, key, 31, &db) == NACRE_INVALID_ARGUMENT && db == NULL);
  CHECK(nacre_open_with_key(path, NULL, 9, key, 32, &db) == NACRE_INVALID_ARGUMENT);
  CHECK(nacre_open_with_key(path, NULL, NACRE_KEY_PASSPHRASE, bytes("\xff"), 1, &db) == NACRE_INVALID_ARGUMENT);
  CHECK(nacre_open_with_key(path, NULL, NACRE_KEY_BYTES, key, 32, &db) == NACRE_OK);
  CHECK(nacre_collection_open(db, NULL, &docs) == NACRE_OK);
  CHECK(put(docs, "a", "1") == NACRE_OK);
  nacre_collection_free(docs);
  CHECK(nacre_close(db) == NACRE_OK);
  CHECK(nacre_open(path, NULL, &db) == NACRE_ENCRYPTED && db == NULL);
  CHECK(nacre_open_with_key(path, NULL, NACRE_KEY_BYTES, other, 32, &db) == NACRE_WRONG_KEY && db == NULL);
  CHECK(nacre_open_with_key(path, NULL, NACRE_KEY_BYTES, key, 32, &db) == NACRE_OK);
  CHECK(nacre_rekey(db, NACRE_KEY_PASSPHRASE, word, 11) == NACRE_OK);
  CHECK(nacre_rekey(db, NACRE_KEY_BYTES, key, 31) == NACRE_INVALID_ARGUMENT);
  CHECK(nacre_close(db) == NACRE_OK);
  CHECK(nacre_open_with_key(path, NULL, NACRE_KEY_BYTES, key, 32, &db) == NACRE_WRONG_KEY);
  CHECK(nacre_open_with_key(path, NULL, NACRE_KEY_PASSPHRASE, word, 11, &db) == NACRE_OK);
  CHECK(nacre_collection_open(db, NULL, &docs) == NACRE_OK);
  CHECK(has(docs, "a", "1"));
  nacre_collection_free(docs);
  CHECK(nacre_close(db) == NACRE_OK);
}

/* Returns true if a query is answered with this text. */
static int answers(nacre *db, const char *view, const char *parameters, const char *expected) {
  nacre_buffer rows = {0};
  int status = nacre_view_query(db, "d", view, parameters, 0, &rows);
  int is_found = status == NACRE_OK && rows.size < 4096;
  char text[4096] = {0};
  if (is_found)
    memcpy(text, rows.data, rows.size);
  nacre_buffer_free(&rows);
  if (!is_found || !strstr(text, expected))
    fprintf(stderr, "%s?%s: %d %s %s\n", view, parameters ? parameters : "", status, text, nacre_error_message());
  return is_found && strstr(text, expected) != NULL;
}

static void views(nacre *db) {
  nacre_collection *docs;
  nacre_buffer rows = {0};
  CHECK(nacre_collection_open(db, "seen.docs", &docs) == NACRE_OK);
  CHECK(put(docs, "a", "{\"n\":2}") == NACRE_OK);
  CHECK(nacre_view_query(db, "d", "sum", NULL, 0, &rows) == NACRE_VIEW_NOT_FOUND);
  CHECK(nacre_design_put(db, "d", "{\"views\":{\"v\":{\"map\":\"function (\"}}}") == NACRE_INVALID_ARGUMENT);
  CHECK(strstr(nacre_error_message(), "map of view") != NULL);
  /* The second function needs the engine. */
  const char *design = "{\"collection\":\"seen.docs\",\"views\":{"
                       "\"sum\":{\"map\":\"function (doc, meta) { emit(meta.id, doc.n); }\",\"reduce\":\"_sum\"},"
                       "\"twice\":{\"map\":\"function (doc, meta) { [1, 2].forEach(function (i) { emit(i, doc.n); }); }\"}}}";
  CHECK(nacre_design_put(db, "d", design) == NACRE_OK);
  CHECK(answers(db, "sum", NULL, "\"value\":2"));
  CHECK(put(docs, "b", "{\"n\":3}") == NACRE_OK);
  CHECK(answers(db, "sum", "stale=ok", "\"value\":2"));
  CHECK(nacre_views_update(db) == NACRE_OK);
  CHECK(answers(db, "sum", "stale=ok", "\"value\":5"));
  CHECK(answers(db, "twice", "key=2&descending=true&limit=1", "\"id\":\"b\""));
  CHECK(nacre_view_query(db, "d", "none", NULL, 1000, &rows) == NACRE_VIEW_NOT_FOUND);
  CHECK(nacre_view_query(db, "d", "sum", "limit=x", 0, &rows) == NACRE_INVALID_ARGUMENT);
  CHECK(nacre_view_query(db, "d", "sum", "stale=maybe", 0, &rows) == NACRE_INVALID_ARGUMENT);
  CHECK(nacre_view_query(db, "d", NULL, NULL, 0, &rows) == NACRE_INVALID_ARGUMENT);
  int http = 0;
  CHECK(nacre_manage(db, "GET", "/default/_design/d/_view/sum", NULL, 0, &http, &rows) == NACRE_OK && http == 200);
  nacre_buffer_free(&rows);
  CHECK(nacre_design_drop(db, "d") == NACRE_OK);
  CHECK(nacre_design_drop(db, "d") == NACRE_VIEW_NOT_FOUND);
  CHECK(nacre_remove(docs, bytes("a"), 1, NULL, NULL) == NACRE_OK);
  nacre_collection_free(docs);
}

/* Returns true if a statement is answered with this text. */
static int yields(nacre *db, const char *statement, const char *parameters, const char *expected) {
  nacre_buffer answer = {0};
  int status = nacre_query(db, statement, parameters, &answer);
  int is_answered = status == NACRE_OK && answer.size < 4096;
  char text[4096] = {0};
  if (is_answered)
    memcpy(text, answer.data, answer.size);
  nacre_buffer_free(&answer);
  if (!is_answered || !strstr(text, expected))
    fprintf(stderr, "%s: %d %s %s\n", statement, status, text, nacre_error_message());
  return is_answered && strstr(text, expected) != NULL;
}

static void queries(nacre *db) {
  nacre_collection *docs;
  nacre_buffer answer = {0};
  const char *shop = "{\"query_context\":\"default:default.asked\",\"args\":[2],\"$who\":\"ann\"}";
  const char *reads = "{\"query_context\":\"default:default.asked\",\"readonly\":true}";
  CHECK(nacre_collection_open(db, "asked.docs", &docs) == NACRE_OK);
  CHECK(put(docs, "a", "{\"n\":1}") == NACRE_OK);
  CHECK(yields(db, "SELECT RAW 1 + 2", NULL, "\n3\n"));
  CHECK(yields(db, "INSERT INTO docs (KEY, VALUE) VALUES (\"b\", {\"n\": $1, \"who\": $who})", shop, "\"mutationCount\":1"));
  CHECK(has(docs, "b", "{\"n\":2,\"who\":\"ann\"}"));
  CHECK(yields(db, "SELECT RAW META(d).id FROM docs d WHERE d.n >= $1", shop, "\n\"b\"\n"));
  CHECK(yields(db, "SELECT RAW d.n FROM docs d USE KEYS [\"a\"]", reads, "\n1\n"));
  CHECK(nacre_query(db, "SELECT FROM", NULL, &answer) == NACRE_QUERY_FAILED && answer.size == 0);
  CHECK(strstr(nacre_error_message(), "(code 3000)") != NULL);
  CHECK(nacre_query(db, "DELETE FROM docs", reads, &answer) == NACRE_QUERY_FAILED);
  CHECK(nacre_query(db, "SELECT 1", "[", &answer) == NACRE_QUERY_FAILED);
  CHECK(nacre_query(db, "SELECT 1", "{\"speed\":1}", &answer) == NACRE_QUERY_FAILED);
  CHECK(strstr(nacre_error_message(), "(code 1065)") != NULL);
  CHECK(nacre_query(db, NULL, NULL, &answer) == NACRE_INVALID_ARGUMENT);
  CHECK(has(docs, "a", "{\"n\":1}"));
  int http = 0;
  const char *body = "{\"statement\":\"SELECT RAW COUNT(*) FROM `default`.asked.docs\"}";
  CHECK(nacre_manage(db, "POST", "/query/service", bytes(body), strlen(body), &http, &answer) == NACRE_OK && http == 200);
  nacre_buffer_free(&answer);
  nacre_collection_free(docs);
}

int main(int count, char **arguments) {
  CHECK(count == 2 && strlen(nacre_version()) > 0);
  nacre *db, *other;
  nacre_options options = {.size = sizeof options, .no_create = 1};
  CHECK(nacre_open(arguments[1], &options, &db) == NACRE_IO && db == NULL);
  options.size = 3;
  CHECK(nacre_open(arguments[1], &options, &db) == NACRE_INVALID_ARGUMENT);
  CHECK(nacre_open(NULL, NULL, &db) == NACRE_INVALID_ARGUMENT);
  options = (nacre_options){.size = sizeof options, .sync = NACRE_SYNC_AFTER, .sync_delay_us = 2000, .vbuckets = 16};
  CHECK(nacre_open(arguments[1], &options, &db) == NACRE_OK);
  CHECK(nacre_open(arguments[1], NULL, &other) == NACRE_IN_USE && other == NULL);
  documents(db);
  parts(db);
  scans(db);
  listeners(db);
  sessions(db);
  keyspaces(db);
  views(db);
  queries(db);
  sync_without_a_network(db);
  CHECK(nacre_flush(db) == NACRE_OK);
  CHECK(nacre_compact(db) == NACRE_OK);
  uint64_t wait_us = 0;
  CHECK(nacre_poll(db, &wait_us) == NACRE_OK && wait_us > 0);
  nacre_figures figures = {.size = sizeof figures};
  CHECK(nacre_stats(db, &figures) == NACRE_OK && figures.documents > 20 && figures.unsaved == 0 && figures.disk_bytes > 0);
  nacre_collection *docs;
  CHECK(nacre_collection_open(db, "shop.orders", &docs) == NACRE_OK);
  CHECK(nacre_close(db) == NACRE_OK);
  CHECK(nacre_close(NULL) == NACRE_OK);
  CHECK(put(docs, "a", "1") == NACRE_CLOSED);
  nacre_collection_free(docs);

  options.no_create = 1;
  options.sync = NACRE_SYNC_ALWAYS;
  options.no_thread = 1;
  CHECK(nacre_open(arguments[1], &options, &db) == NACRE_OK);
  CHECK(nacre_collection_open(db, "shop.orders", &docs) == NACRE_OK);
  CHECK(has(docs, "a", "2"));
  nacre_collection_free(docs);
  CHECK(nacre_rekey(db, NACRE_KEY_PASSPHRASE, bytes("p"), 1) == NACRE_NOT_ENCRYPTED);
  CHECK(nacre_close(db) == NACRE_OK);
  char path[4096];
  snprintf(path, sizeof path, "%s-encrypted", arguments[1]);
  encryption(path);
  printf("all well\n");
  return 0;
}
