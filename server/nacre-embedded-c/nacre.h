/*
 * Embedded nacre: a database of JSON documents in the process, in a folder or in memory, without a server.
 *
 * Every function that can fail returns a status: NACRE_OK, or a number whose text nacre_error_message() returns in the same thread
 * until its next call that fails. Several threads may use a handle; each handle is freed once, by the function named for it, and freeing
 * NULL does nothing. Input bytes are copied before the call returns. There are no callbacks: when a session or a listener may have
 * news, the descriptor of nacre_wake_fd() becomes readable.
 *
 * Structs begin with `size`, which the caller sets to sizeof the struct, so that later versions can have more members.
 *
 * Written by `cargo test -p nacre-embedded-c` from the Rust sources; do not edit.
 */

#ifndef NACRE_H
#define NACRE_H

#include <stddef.h>
#include <stdint.h>

/*
 The document was created or changed.
 */
#define NACRE_WRITTEN 0

/*
 The document was deleted.
 */
#define NACRE_REMOVED 1

/*
 The document expired.
 */
#define NACRE_EXPIRED 2

/*
 Writes are on disk within `sync_delay_us` microseconds after they return.
 */
#define NACRE_SYNC_AFTER 0

/*
 Writes are on disk before they return.
 */
#define NACRE_SYNC_ALWAYS 1

/*
 Writes are on disk after nacre_flush() and nacre_close().
 */
#define NACRE_SYNC_NEVER 2

/*
 The store is nacre's segmented log.
 */
#define NACRE_STORE_LOG 0

/*
 The store is sled, if the library was built with it.
 */
#define NACRE_STORE_SLED 1

/*
 The key has 32 random bytes.
 */
#define NACRE_KEY_BYTES 0

/*
 The key is a passphrase in UTF-8, without a zero at the end.
 */
#define NACRE_KEY_PASSPHRASE 1

/*
 Writes a document, whether it exists or not.
 */
#define NACRE_UPSERT 0

/*
 Writes a document that must not exist.
 */
#define NACRE_INSERT 1

/*
 Writes a document that must exist.
 */
#define NACRE_REPLACE 2

/*
 The call succeeded.
 */
#define NACRE_OK 0

/*
 The document does not exist.
 */
#define NACRE_NOT_FOUND 1

/*
 The document already exists.
 */
#define NACRE_EXISTS 2

/*
 The document has another version than the one given.
 */
#define NACRE_CAS_MISMATCH 3

/*
 The document is locked.
 */
#define NACRE_LOCKED 4

/*
 The document is not locked.
 */
#define NACRE_NOT_LOCKED 5

/*
 The document of a counter is not a number.
 */
#define NACRE_NOT_A_NUMBER 6

/*
 The document would be too large.
 */
#define NACRE_TOO_LARGE 7

/*
 A part of a document cannot be read or changed.
 */
#define NACRE_PATH 8

/*
 An argument is NULL, out of range, or contradicts another.
 */
#define NACRE_INVALID_ARGUMENT 9

/*
 The scope does not exist or was dropped.
 */
#define NACRE_SCOPE_NOT_FOUND 10

/*
 The collection does not exist or was dropped.
 */
#define NACRE_COLLECTION_NOT_FOUND 11

/*
 The scope or collection already exists.
 */
#define NACRE_KEYSPACE_EXISTS 12

/*
 The folder is already open; the message contains the process ID.
 */
#define NACRE_IN_USE 13

/*
 The folder was written by a newer version.
 */
#define NACRE_NEWER 14

/*
 Files are damaged or missing.
 */
#define NACRE_DAMAGED 15

/*
 The disk is full.
 */
#define NACRE_FULL 16

/*
 The memory quota is used up.
 */
#define NACRE_QUOTA_EXCEEDED 17

/*
 The disk failed, and no more writes are stored.
 */
#define NACRE_BROKEN 18

/*
 The operating system refused an operation on the folder.
 */
#define NACRE_IO 19

/*
 The database was closed.
 */
#define NACRE_CLOSED 20

/*
 The database was opened before fork().
 */
#define NACRE_FORKED 21

/*
 The changes after a token were lost.
 */
#define NACRE_GONE 22

/*
 The session has ended.
 */
#define NACRE_SESSION_ENDED 23

/*
 Nothing is available now, or there are no more results.
 */
#define NACRE_NOTHING 24

/*
 The folder is encrypted with another key.
 */
#define NACRE_WRONG_KEY 25

/*
 The folder is encrypted, and no key was given: use nacre_open_with_key().
 */
#define NACRE_ENCRYPTED 26

/*
 A key was given for a database that is not encrypted.
 */
#define NACRE_NOT_ENCRYPTED 27

/*
 The design document or the view does not exist.
 */
#define NACRE_VIEW_NOT_FOUND 30

/*
 The rows of a view were not ready in time: try again.
 */
#define NACRE_VIEWS_NOT_READY 31

/*
 The rows of a design document, or the answer to a query, are too large.
 */
#define NACRE_VIEWS_TOO_LARGE 32

/*
 The engine of views failed.
 */
#define NACRE_VIEWS_FAILED 33

/*
 A query was refused or has failed; the message ends with the code of the query service.
 */
#define NACRE_QUERY_FAILED 34

/*
 A bug in this library.
 */
#define NACRE_INTERNAL 99

/*
 Reads the value at a path.
 */
#define NACRE_PART_GET 0

/*
 Fails when the path does not exist.
 */
#define NACRE_PART_EXISTS 1

/*
 Reads the number of elements or members.
 */
#define NACRE_PART_COUNT 2

/*
 Reads or replaces the whole body.
 */
#define NACRE_PART_DOCUMENT 3

/*
 Adds or replaces a member.
 */
#define NACRE_PART_UPSERT 4

/*
 Adds a member that must not exist.
 */
#define NACRE_PART_INSERT 5

/*
 Replaces a member or an element that must exist.
 */
#define NACRE_PART_REPLACE 6

/*
 Removes a member or an element.
 */
#define NACRE_PART_REMOVE 7

/*
 Adds elements at the end of an array.
 */
#define NACRE_PART_ARRAY_APPEND 8

/*
 Adds elements at the start of an array.
 */
#define NACRE_PART_ARRAY_PREPEND 9

/*
 Inserts elements before the element at the path.
 */
#define NACRE_PART_ARRAY_INSERT 10

/*
 Adds a value to an array that does not contain it.
 */
#define NACRE_PART_ARRAY_ADD_UNIQUE 11

/*
 Adds a decimal number to the number at the path.
 */
#define NACRE_PART_COUNTER 12

/*
 The path is that of an extended attribute.
 */
#define NACRE_PART_XATTR 1

/*
 Missing parents are created.
 */
#define NACRE_PART_CREATE_PATH 2

/*
 Macros in the value are expanded.
 */
#define NACRE_PART_EXPAND_MACROS 4

/*
 An open database.
 */
typedef struct nacre nacre;

/*
 A listener.
 */
typedef struct nacre_changes nacre_changes;

/*
 A collection of an open database.
 */
typedef struct nacre_collection nacre_collection;

/*
 The result of a lookup or of a change of parts.
 */
typedef struct nacre_parts nacre_parts;

/*
 The documents of a range of keys.
 */
typedef struct nacre_scan nacre_scan;

/*
 A session, logged in as the owner of the database, which is the bucket "default".
 */
typedef struct nacre_session nacre_session;

/*
 A running sync.
 */
typedef struct nacre_sync nacre_sync;

/*
 A change of a document.
 */
typedef struct nacre_change {
  /*
   sizeof(nacre_change).
   */
  size_t size;
  /*
   NACRE_WRITTEN, NACRE_REMOVED or NACRE_EXPIRED.
   */
  int kind;
  /*
   The collection, "scope.collection".
   */
  const char *collection;
  /*
   The key.
   */
  const uint8_t *key;
  /*
   Bytes of the key.
   */
  size_t key_size;
  /*
   The new body.
   */
  const uint8_t *body;
  /*
   Bytes of the body.
   */
  size_t body_size;
  /*
   The new version.
   */
  uint64_t cas;
  /*
   The position in the history of its vBucket.
   */
  uint64_t seqno;
  /*
   The owner of the memory, for nacre_change_release().
   */
  void *owner;
} nacre_change;

/*
 Bytes that the caller must free with nacre_buffer_free().
 */
typedef struct nacre_buffer {
  /*
   The bytes; NULL for no bytes.
   */
  uint8_t *data;
  /*
   The number of bytes.
   */
  size_t size;
} nacre_buffer;

/*
 A document as read. It does not change; the database owns its memory until it is released.
 */
typedef struct nacre_document {
  /*
   sizeof(nacre_document).
   */
  size_t size;
  /*
   The key.
   */
  const uint8_t *key;
  /*
   Bytes of the key.
   */
  size_t key_size;
  /*
   The body.
   */
  const uint8_t *body;
  /*
   Bytes of the body.
   */
  size_t body_size;
  /*
   The version; UINT64_MAX for a document that is locked.
   */
  uint64_t cas;
  /*
   The flags, a number that the writer stored with the document.
   */
  uint32_t flags;
  /*
   The Unix second at which the document expires; 0 for never.
   */
  uint32_t expiry;
  /*
   Not 0 if the body is JSON.
   */
  int is_json;
  /*
   The owner of the memory, for nacre_document_release().
   */
  void *owner;
} nacre_document;

/*
 Options of a database. 0 selects the default of a member.
 */
typedef struct nacre_options {
  /*
   sizeof(nacre_options).
   */
  size_t size;
  /*
   NACRE_SYNC_AFTER, NACRE_SYNC_ALWAYS or NACRE_SYNC_NEVER.
   */
  int sync;
  /*
   NACRE_STORE_LOG or NACRE_STORE_SLED, for a new folder.
   */
  int store;
  /*
   Microseconds for NACRE_SYNC_AFTER; 10000 by default.
   */
  uint64_t sync_delay_us;
  /*
   Memory for documents in MiB, at least 4; 64 by default.
   */
  uint64_t quota_mib;
  /*
   The number of vBuckets of a new folder, 1 to 1024; 16 by default.
   */
  uint32_t vbuckets;
  /*
   Bytes of a segment of the log, at least 65536; 1 MiB by default.
   */
  uint32_t segment_bytes;
  /*
   Not 0: the library starts no thread, and the application calls nacre_poll().
   */
  int no_thread;
  /*
   Not 0: opens only an existing database.
   */
  int no_create;
} nacre_options;

/*
 Figures of a database.
 */
typedef struct nacre_figures {
  /*
   sizeof(nacre_figures).
   */
  size_t size;
  /*
   Existing documents.
   */
  uint64_t documents;
  /*
   Bytes of memory used.
   */
  uint64_t memory_bytes;
  /*
   Bytes of the files.
   */
  uint64_t disk_bytes;
  /*
   Changes that are not on disk yet.
   */
  uint64_t unsaved;
  /*
   Not 0 while writes wait for space on the disk.
   */
  int is_full;
} nacre_figures;

/*
 Options of a write. 0 selects the default of a member.
 */
typedef struct nacre_write {
  /*
   sizeof(nacre_write).
   */
  size_t size;
  /*
   The version that the document must have; 0 for any.
   */
  uint64_t cas;
  /*
   A number to store with the document.
   */
  uint32_t flags;
  /*
   Seconds until the document expires, up to 30 days; a larger number is a Unix second.
   */
  uint32_t expiry;
  /*
   Not 0: an existing document keeps its expiry.
   */
  int keep_expiry;
  /*
   Not 0: the write is on disk before the call returns.
   */
  int durable;
} nacre_write;

/*
 The version that a write created.
 */
typedef struct nacre_stored {
  /*
   sizeof(nacre_stored).
   */
  size_t size;
  /*
   The version.
   */
  uint64_t cas;
  /*
   The branch of the vBucket's history.
   */
  uint64_t vb_uuid;
  /*
   The position in that history.
   */
  uint64_t seqno;
  /*
   The vBucket.
   */
  uint32_t vbucket;
} nacre_stored;

/*
 An operation on a part of a document.
 */
typedef struct nacre_part {
  /*
   sizeof(nacre_part).
   */
  size_t size;
  /*
   One of NACRE_PART_GET to NACRE_PART_COUNTER.
   */
  int operation;
  /*
   A sum of NACRE_PART_XATTR, NACRE_PART_CREATE_PATH and NACRE_PART_EXPAND_MACROS.
   */
  uint32_t flags;
  /*
   The path, in UTF-8.
   */
  const uint8_t *path;
  /*
   Bytes of the path.
   */
  size_t path_size;
  /*
   JSON to write.
   */
  const uint8_t *value;
  /*
   Bytes of the value.
   */
  size_t value_size;
} nacre_part;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Listens to the changes of `collection`, or of all collections with NULL. `since` is NULL for the whole history, "now" for
 future writes only, or a text from nacre_changes_token().
 */
int nacre_changes_open(const struct nacre *db,
                       const struct nacre_collection *collection,
                       const char *since,
                       struct nacre_changes **changes);

/*
 Returns the next change and waits for it up to `timeout_ms`; NACRE_NOTHING when none came. Release the change.
 */
int nacre_changes_next(const struct nacre_changes *changes,
                       uint64_t timeout_ms,
                       struct nacre_change *change);

/*
 Returns the memory of a change. Releasing it again does nothing.
 */
void nacre_change_release(struct nacre_change *change);

/*
 Returns the position of the listener as a text, to be stored and passed to nacre_changes_open(). Free the buffer; its text is
 not zero-terminated.
 */
int nacre_changes_token(const struct nacre_changes *changes,
                        struct nacre_buffer *token);

/*
 Ends a listener and frees it.
 */
void nacre_changes_free(struct nacre_changes *changes);

/*
 Opens the collection `path`, "scope.collection" or "collection", and creates it and its scope if they are missing;
 NULL opens "_default._default".
 */
int nacre_collection_open(const struct nacre *db,
                          const char *path,
                          struct nacre_collection **collection);

/*
 Frees the handle.
 */
void nacre_collection_free(struct nacre_collection *collection);

/*
 Opens a scan of the keys from `start`, included, to `end`, excluded; NULL for no bound. Keys are in byte order.
 */
int nacre_scan_open(const struct nacre_collection *collection,
                    const uint8_t *start,
                    size_t start_size,
                    const uint8_t *end,
                    size_t end_size,
                    struct nacre_scan **scan);

/*
 Reads the next document; NACRE_NOTHING at the end. Release the document.
 */
int nacre_scan_next(const struct nacre_scan *scan, struct nacre_document *document);

/*
 Ends a scan and frees it.
 */
void nacre_scan_free(struct nacre_scan *scan);

/*
 Opens the database in the folder `path`; ":memory:" opens a new one in memory. `options` may be NULL.
 */
int nacre_open(const char *path,
               const struct nacre_options *options,
               struct nacre **db);

/*
 Opens the encrypted database in the folder `path` with its key, which is NACRE_KEY_BYTES or NACRE_KEY_PASSPHRASE. A new folder
 is encrypted with it. `options` may be NULL.
 */
int nacre_open_with_key(const char *path,
                        const struct nacre_options *options,
                        int key_kind,
                        const uint8_t *key,
                        size_t key_size,
                        struct nacre **db);

/*
 Replaces the key of an encrypted database. From then on only the new key opens it.
 */
int nacre_rekey(const struct nacre *db, int key_kind, const uint8_t *key, size_t key_size);

/*
 Stores all unsaved writes, closes the database and frees the handle, also on failure. Its collections, sessions and listeners
 fail with NACRE_CLOSED from then on, and must be freed separately.
 */
int nacre_close(struct nacre *db);

/*
 Stores all writes that have returned, and waits until they survive a power cut.
 */
int nacre_flush(const struct nacre *db);

/*
 Frees as much disk space as possible.
 */
int nacre_compact(const struct nacre *db);

/*
 Does the work that is due, for a database without a thread. Writes to `wait_us` the microseconds until more work is due, or
 UINT64_MAX.
 */
int nacre_poll(const struct nacre *db,
               uint64_t *wait_us);

/*
 Reads the figures of the database.
 */
int nacre_stats(const struct nacre *db, struct nacre_figures *figures);

/*
 Returns a descriptor that becomes readable when a session or a listener of the database may have news. Wait for it, call
 nacre_wake_clear(), and then check each session and listener. It is closed with the last handle that needs it. Returns -1 on
 failure.
 */
int nacre_wake_fd(const struct nacre *db);

/*
 Makes the descriptor of nacre_wake_fd() unreadable until there is more news.
 */
int nacre_wake_clear(const struct nacre *db);

/*
 Creates a scope.
 */
int nacre_scope_create(const struct nacre *db, const char *scope);

/*
 Drops a scope, its collections and their documents.
 */
int nacre_scope_drop(const struct nacre *db, const char *scope);

/*
 Creates a collection. Its documents live for at most `max_ttl_s` seconds; 0 for no limit.
 */
int nacre_collection_create(const struct nacre *db,
                            const char *scope,
                            const char *name,
                            uint32_t max_ttl_s);

/*
 Drops a collection and its documents.
 */
int nacre_collection_drop(const struct nacre *db, const char *scope, const char *name);

/*
 Returns the collections as JSON: an array of "scope.collection".
 */
int nacre_collections(const struct nacre *db, struct nacre_buffer *names);

/*
 Answers an SDK's request about scopes and collections, about views, or for SQL++. `method` and `path` are those of HTTP, `body` is a
 form, or JSON for views and SQL++. Writes the HTTP status to `http_status` and the body of the answer to `answer`.
 */
int nacre_manage(const struct nacre *db,
                 const char *method,
                 const char *path,
                 const uint8_t *body,
                 size_t body_size,
                 int *http_status,
                 struct nacre_buffer *answer);

/*
 Reads a document. Release the document.
 */
int nacre_get(const struct nacre_collection *collection,
              const uint8_t *key,
              size_t key_size,
              struct nacre_document *document);

/*
 Returns the memory of a document to the database. The document is empty afterwards; releasing it again does nothing.
 */
void nacre_document_release(struct nacre_document *document);

/*
 Sets `exists` to 1 if the document exists, else to 0.
 */
int nacre_exists(const struct nacre_collection *collection,
                 const uint8_t *key,
                 size_t key_size,
                 int *exists);

/*
 Writes a document: `mode` is NACRE_UPSERT, NACRE_INSERT or NACRE_REPLACE. `write` and `stored` may be NULL.
 */
int nacre_put(const struct nacre_collection *collection,
              int mode,
              const uint8_t *key,
              size_t key_size,
              const uint8_t *body,
              size_t body_size,
              const struct nacre_write *write,
              struct nacre_stored *stored);

/*
 Deletes a document.
 */
int nacre_remove(const struct nacre_collection *collection,
                 const uint8_t *key,
                 size_t key_size,
                 const struct nacre_write *write,
                 struct nacre_stored *stored);

/*
 Sets the expiry of a document, as in nacre_write.
 */
int nacre_touch(const struct nacre_collection *collection,
                const uint8_t *key,
                size_t key_size,
                uint32_t expiry);

/*
 Reads and locks a document for 1 to 30 seconds. Release the document; nacre_unlock() or a write with its CAS ends the lock.
 */
int nacre_lock(const struct nacre_collection *collection,
               const uint8_t *key,
               size_t key_size,
               uint32_t seconds,
               struct nacre_document *document);

/*
 Unlocks a document.
 */
int nacre_unlock(const struct nacre_collection *collection,
                 const uint8_t *key,
                 size_t key_size,
                 uint64_t cas);

/*
 Adds to a number. A missing document becomes `*initial`; with NULL it must exist. Writes the sum to `value`.
 */
int nacre_add(const struct nacre_collection *collection,
              const uint8_t *key,
              size_t key_size,
              int64_t delta,
              const uint64_t *initial,
              const struct nacre_write *write,
              uint64_t *value,
              struct nacre_stored *stored);

/*
 Appends bytes to the body of a document.
 */
int nacre_append(const struct nacre_collection *collection,
                 const uint8_t *key,
                 size_t key_size,
                 const uint8_t *data,
                 size_t data_size,
                 const struct nacre_write *write,
                 struct nacre_stored *stored);

/*
 Prepends bytes to the body of a document.
 */
int nacre_prepend(const struct nacre_collection *collection,
                  const uint8_t *key,
                  size_t key_size,
                  const uint8_t *data,
                  size_t data_size,
                  const struct nacre_write *write,
                  struct nacre_stored *stored);

/*
 Frees the bytes of a buffer. The buffer is empty afterwards.
 */
void nacre_buffer_free(struct nacre_buffer *buffer);

/*
 Returns the message of the last failure in this thread. It is valid until the thread's next call that
 fails.
 */
const char *nacre_error_message(void);

/*
 Returns the version of the library, such as "0.1.0".
 */
const char *nacre_version(void);

/*
 Executes a SQL++ statement over the documents. `parameters` is NULL or a JSON object with members of a request to a server's query
 service: {"args": [1], "$name": "ann", "query_context": "default:default.shop", "readonly": true, "timeout": "10s"}. Writes the body of
 the service's answer to `answer`, a JSON object with the rows in "results". The message of NACRE_QUERY_FAILED ends with the service's
 code. A statement that fails may have changed documents. Free the buffer.
 */
int nacre_query(const struct nacre *db,
                const char *statement,
                const char *parameters,
                struct nacre_buffer *answer);

/*
 Opens a session.
 */
int nacre_session_open(const struct nacre *db, struct nacre_session **session);

/*
 Accepts requests, the last of which may be incomplete. `responses` receives complete frames, or none: free it. More may become
 ready later: see nacre_session_poll(). A failure ends the session, but there may be responses nevertheless.
 */
int nacre_session_receive(const struct nacre_session *session,
                          const uint8_t *requests,
                          size_t requests_size,
                          struct nacre_buffer *responses);

/*
 Returns responses that have become ready: free them. Call it when the descriptor of nacre_wake_fd() is readable.
 */
int nacre_session_poll(const struct nacre_session *session,
                       struct nacre_buffer *responses);

/*
 Ends a session and frees it.
 */
void nacre_session_free(struct nacre_session *session);

/*
 Reads up to 16 parts of a document. Free `found`; its parts have the indexes of the request.
 */
int nacre_lookup_in(const struct nacre_collection *collection,
                    const uint8_t *key,
                    size_t key_size,
                    const struct nacre_part *parts,
                    size_t count,
                    struct nacre_parts **found);

/*
 Changes up to 16 parts of a document: all or none. `mode` is as for nacre_put(). `results` may be NULL; otherwise free it: the
 indexes of counters have the new values.
 */
int nacre_mutate_in(const struct nacre_collection *collection,
                    int mode,
                    const uint8_t *key,
                    size_t key_size,
                    const struct nacre_part *parts,
                    size_t count,
                    const struct nacre_write *write,
                    struct nacre_stored *stored,
                    struct nacre_parts **results);

/*
 Returns the version of the document.
 */
uint64_t nacre_parts_cas(const struct nacre_parts *parts);

/*
 Returns the value of one part, which is valid until the parts are freed. NACRE_PATH when it could not be read, NACRE_NOTHING
 when it has no value.
 */
int nacre_parts_get(const struct nacre_parts *parts,
                    size_t index,
                    const uint8_t **value,
                    size_t *value_size);

/*
 Frees parts and their values.
 */
void nacre_parts_free(struct nacre_parts *parts);

/*
 Keeps the database in step with a bucket, on a separate thread, until nacre_sync_free(). `options` is JSON:
 {"url": "https://host:18091/bucket", "user": "..", "password": "..", "collections": ["scope.collection"],
 "conflicts": "log" | "server", "direction": "both" | "pull", "certificates": PEM, "device": "..", "allow_plain": false};
 "conflicts" and the members after it are optional. A database can have one sync at a time.
 */
int nacre_sync_start(const struct nacre *db,
                     const char *options,
                     struct nacre_sync **sync);

/*
 Returns figures as JSON: state ("offline", "connecting", "catching_up", "live" or "stopped"), reason, trouble, pulled, pushed,
 conflicts, parked, remaining, on_the_way. Free the buffer.
 */
int nacre_sync_status(const struct nacre_sync *sync,
                      struct nacre_buffer *status);

/*
 Waits until the device has everything that the hub has now, and the hub has everything that the device has written: NACRE_OK,
 or NACRE_NOTHING after `timeout_ms` milliseconds.
 */
int nacre_sync_wait(const struct nacre_sync *sync,
                    uint64_t timeout_ms);

/*
 Returns the next event as JSON, {"event": "state" | "conflict" | "parked" | "no_collection" | "again", ..}, and waits for it
 up to `timeout_ms` milliseconds: NACRE_OK, or NACRE_NOTHING. Free the buffer.
 */
int nacre_sync_next_event(const struct nacre_sync *sync,
                          uint64_t timeout_ms,
                          struct nacre_buffer *event);

/*
 Connects at once instead of after the current pause, for example when the network is back.
 */
int nacre_sync_retry(const struct nacre_sync *sync);

/*
 Ends sync, and waits for its thread. The next sync sends what was not sent.
 */
void nacre_sync_free(struct nacre_sync *sync);

/*
 Creates or replaces a design document, in JSON: {"collection": "scope.collection", "views": {"by_name": {"map": "function (doc,
 meta) {..}", "reduce": "_count"}}}; "collection" and "reduce" are optional. Compiles the functions, and refuses invalid ones.
 */
int nacre_design_put(const struct nacre *db,
                     const char *name,
                     const char *document);

/*
 Drops a design document and its rows.
 */
int nacre_design_drop(const struct nacre *db, const char *name);

/*
 Queries a view. `parameters` is NULL or the query string of the same request to a server, such as "group=true&limit=10"; keys are
 JSON, percent-encoded. First brings the rows up to date, unless "stale=ok" or "stale=update_after" is among them; this may take up
 to `timeout_ms` milliseconds, 0 for no limit. Writes JSON to `answer`: {"total_rows": 1, "rows": [{"id": .., "key": .., "value":
 ..}]}. The calling thread needs 512 KiB of free stack. Free the buffer.
 */
int nacre_view_query(const struct nacre *db,
                     const char *design,
                     const char *view,
                     const char *parameters,
                     uint64_t timeout_ms,
                     struct nacre_buffer *answer);

/*
 Brings the rows of all views up to date, so that queries with "stale=ok" return what was written before.
 */
int nacre_views_update(const struct nacre *db);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NACRE_H */
