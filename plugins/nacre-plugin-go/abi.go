//go:build wasip1

package nacre

import (
	"encoding/json"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"
)

// Layout of values in memory, by the canonical ABI of components. Pointers have 32 bits there, independent of Go: a record
// whose fields have at most 32 bits is written as words, one for each field, and a single byte is the low byte of a word.
//
// Go's collector does not see references of the host. Blocks allocated by the host are kept in `allocated` until a Go slice
// refers to them; blocks that the host reads are kept in `lowered` until it has read them.
var (
	allocated []unsafe.Pointer
	lowered   []unsafe.Pointer
	// The result of an import or an export: the largest has 40 bytes and an alignment of 8.
	answered [5]uint64
	given    [5]uint64
	nothing  uint64
)

// host is locked during the call of an import, and by the SDK while no method of the plugin runs. An allocation for the host may
// start the collector and let another goroutine continue. That goroutine must neither call the host, which ends a call from
// inside of an allocation, nor touch the blocks above.
var host sync.Mutex

// isHeld reports whether the SDK has locked host: not before the first call.
var isHeld bool

// unlockHost lets the plugin's goroutines call the host, until the returned function is called.
func unlockHost() func() {
	if isHeld {
		host.Unlock()
	}
	isHeld = true
	return host.Lock
}

// memoryMB is the limit of the deployment in MiB, in decimal, which `nacre plugin build` sets.
var memoryMB string

// The collector must know the limit: otherwise garbage could grow to the size of the live memory. The rest of the memory is
// for WebAssembly's own stacks, for globals and for fragmentation.
func init() {
	if limit, err := strconv.ParseInt(memoryMB, 10, 32); err == nil && limit > 0 {
		debug.SetMemoryLimit(limit << 20 * 15 / 16)
	}
}

// allocate returns a block for data that the host passes to the plugin.
//
//go:wasmexport cabi_realloc
func allocate(old unsafe.Pointer, oldBytes, _, bytes uint32) unsafe.Pointer {
	if bytes == 0 {
		return unsafe.Pointer(&nothing)
	}
	// Go aligns blocks by the largest power of two, up to 8, that divides their size; the size of a value is a multiple of its
	// alignment.
	block := make([]byte, bytes)
	if oldBytes > 0 {
		copy(block, unsafe.Slice((*byte)(old), oldBytes))
	}
	pointer := unsafe.Pointer(unsafe.SliceData(block))
	allocated = append(allocated, pointer)
	return pointer
}

// lifted drops the blocks that the host has allocated, once Go refers to them.
func lifted() {
	clear(allocated)
	allocated = allocated[:0]
}

// release drops the blocks that the host has read.
func release() {
	clear(lowered)
	lowered = lowered[:0]
}

// beginImport begins a call of an import; the returned function ends it.
func beginImport() func() {
	host.Lock()
	return func() {
		lifted()
		release()
		host.Unlock()
	}
}

// hold keeps a block on the heap, at its address, until [release].
func hold(pointer unsafe.Pointer) unsafe.Pointer {
	lowered = append(lowered, pointer)
	return pointer
}

func address(pointer unsafe.Pointer) uint32 { return uint32(uintptr(pointer)) }

func lowerBytes(value []byte) (unsafe.Pointer, uint32) {
	return hold(unsafe.Pointer(unsafe.SliceData(value))), uint32(len(value))
}

// lowerKey passes text of arbitrary bytes to the host.
func lowerKey(key string) (unsafe.Pointer, uint32) {
	return hold(unsafe.Pointer(unsafe.StringData(key))), uint32(len(key))
}

// lowerText passes text to the host, which ends the call if it is not UTF-8.
func lowerText(text string) (unsafe.Pointer, uint32) {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return lowerKey(text)
}

// lowerWords passes a list of records to the host.
func lowerWords(words []uint32, recordWords int) (unsafe.Pointer, uint32) {
	return hold(unsafe.Pointer(unsafe.SliceData(words))), uint32(len(words) / recordWords)
}

// words returns pointer and length as fields of a record.
func words(pointer unsafe.Pointer, count uint32) (uint32, uint32) { return address(pointer), count }

func lowerHeaders(headers []Header) (unsafe.Pointer, uint32) {
	fields := make([]uint32, 0, 4*len(headers))
	for _, header := range headers {
		name, nameBytes := words(lowerText(header.Name))
		value, valueBytes := words(lowerText(header.Value))
		fields = append(fields, name, nameBytes, value, valueBytes)
	}
	return lowerWords(fields, 4)
}

func flag(is bool) uint32 {
	if is {
		return 1
	}
	return 0
}

// record is a record written by the host.
type record struct{ start unsafe.Pointer }

func (from record) byte(at uint32) uint8  { return *(*uint8)(unsafe.Add(from.start, at)) }
func (from record) half(at uint32) uint16 { return *(*uint16)(unsafe.Add(from.start, at)) }
func (from record) word(at uint32) uint32 { return *(*uint32)(unsafe.Add(from.start, at)) }
func (from record) long(at uint32) uint64 { return *(*uint64)(unsafe.Add(from.start, at)) }

func (from record) bytes(at uint32) []byte {
	return liftBytes(unsafe.Add(unsafe.Pointer(nil), from.word(at)), from.word(at+4))
}

func (from record) text(at uint32) string {
	return liftText(unsafe.Add(unsafe.Pointer(nil), from.word(at)), from.word(at+4))
}

// optional returns the bytes of an option at that offset; nil for none.
func (from record) optional(at uint32) []byte {
	if from.byte(at) == 0 {
		return nil
	}
	return from.bytes(at + 4)
}

// records returns the list at that offset, of records of that size.
func (from record) records(at, size uint32) []record {
	return liftRecords(unsafe.Add(unsafe.Pointer(nil), from.word(at)), from.word(at+4), size)
}

func (from record) headers(at uint32) []Header {
	return liftHeaders(from.records(at, 16))
}

func liftBytes(start unsafe.Pointer, count uint32) []byte {
	if count == 0 {
		return []byte{}
	}
	return unsafe.Slice((*byte)(start), count)
}

// liftText needs no copy, because data passed by the host is never changed.
func liftText(start unsafe.Pointer, count uint32) string {
	if count == 0 {
		return ""
	}
	return unsafe.String((*byte)(start), count)
}

func liftRecords(start unsafe.Pointer, count, size uint32) []record {
	list := make([]record, count)
	for index := range list {
		list[index].start = unsafe.Add(start, uint32(index)*size)
	}
	return list
}

func liftHeaders(records []record) []Header {
	headers := make([]Header, len(records))
	for index, from := range records {
		headers[index] = Header{from.text(0), from.text(8)}
	}
	return headers
}

func liftRequest(
	method unsafe.Pointer, methodBytes uint32, path unsafe.Pointer, pathBytes uint32,
	query unsafe.Pointer, queryBytes uint32, headers unsafe.Pointer, headerCount uint32,
	body unsafe.Pointer, bodyBytes uint32, now uint64,
) Request {
	return Request{
		Method:  liftText(method, methodBytes),
		Path:    liftText(path, pathBytes),
		Query:   liftText(query, queryBytes),
		Headers: liftHeaders(liftRecords(headers, headerCount, 16)),
		Body:    liftBytes(body, bodyBytes),
		Now:     liftTime(now),
	}
}

// writeResult returns the record of these fields as the result of an export.
func writeResult(fields ...uint32) unsafe.Pointer {
	place := unsafe.Slice((*uint32)(unsafe.Pointer(&given)), 2*len(given))
	clear(place[copy(place, fields):])
	return unsafe.Pointer(&given)
}

// writeFault returns a fault as the result of an export; front are the fields that its alignment needs.
func writeFault(err error, front ...uint32) unsafe.Pointer {
	fault := faultOf(err)
	message, messageBytes := words(lowerText(fault.Message))
	return writeResult(append(front, uint32(fault.Kind), message, messageBytes)...)
}

// The interface `lifecycle`.

//go:wasmexport nacre:plugin/lifecycle@0.1.0#describe
func exportDescribe() unsafe.Pointer {
	return writeResult(words(lowerText(describe())))
}

//go:wasmexport nacre:plugin/lifecycle@0.1.0#init
func exportInit(config unsafe.Pointer, configBytes uint32) unsafe.Pointer {
	taken := liftBytes(config, configBytes)
	lifted()
	holdHost := unlockHost()
	err := initialize(taken)
	holdHost()
	if err != nil {
		return writeFault(err, 1)
	}
	return writeResult(0)
}

// The interface `feed`.

//go:wasmexport nacre:plugin/feed@0.1.0#on-batch
func exportOnBatch(buffer unsafe.Pointer, bufferBytes uint32) unsafe.Pointer {
	taken := liftBytes(buffer, bufferBytes)
	lifted()
	holdHost := unlockHost()
	errors, err := takeBatch(taken)
	holdHost()
	if err != nil {
		return writeFault(err, 1)
	}
	fields := make([]uint32, 0, 3*len(errors))
	for _, failed := range errors {
		message, messageBytes := words(lowerText(failed.Message))
		fields = append(fields, uint32(failed.Index), message, messageBytes)
	}
	list, count := words(lowerWords(fields, 3))
	return writeResult(0, list, count)
}

//go:wasmexport nacre:plugin/feed@0.1.0#rollback
func exportRollback(vb uint32, seqno uint64) unsafe.Pointer {
	holdHost := unlockHost()
	reached, done, err := cutBack(uint16(vb), seqno)
	holdHost()
	if err != nil {
		return writeFault(err, 1, 0)
	}
	return writeResult(0, 0, flag(done), 0, uint32(reached), uint32(reached>>32))
}

// The interface `reader`.

func giveResponse(response Response, err error) unsafe.Pointer {
	if err != nil {
		return writeFault(err, 1)
	}
	if response.Status == 0 {
		response.Status = 200
	}
	headers, headerCount := words(lowerHeaders(response.Headers))
	body, bodyBytes := words(lowerBytes(response.Body))
	cursor, cursorBytes := words(lowerBytes(response.Cursor))
	return writeResult(0, uint32(response.Status), headers, headerCount, body, bodyBytes,
		flag(response.Cursor != nil), cursor, cursorBytes)
}

//go:wasmexport nacre:plugin/reader@0.1.0#handle
func exportHandle(
	method unsafe.Pointer, methodBytes uint32, path unsafe.Pointer, pathBytes uint32,
	query unsafe.Pointer, queryBytes uint32, headers unsafe.Pointer, headerCount uint32,
	body unsafe.Pointer, bodyBytes uint32, now uint64,
) unsafe.Pointer {
	request := liftRequest(method, methodBytes, path, pathBytes, query, queryBytes, headers, headerCount, body, bodyBytes, now)
	lifted()
	holdHost := unlockHost()
	response, err := answer(request)
	holdHost()
	return giveResponse(response, err)
}

//go:wasmexport nacre:plugin/reader@0.1.0#more
func exportMore(cursor unsafe.Pointer, cursorBytes uint32) unsafe.Pointer {
	taken := liftBytes(cursor, cursorBytes)
	lifted()
	holdHost := unlockHost()
	chunk, err := goOn(taken)
	holdHost()
	if err != nil {
		return writeFault(err, 1)
	}
	body, bodyBytes := words(lowerBytes(chunk.Body))
	next, nextBytes := words(lowerBytes(chunk.Cursor))
	return writeResult(0, body, bodyBytes, flag(chunk.Cursor != nil), next, nextBytes)
}

//go:wasmexport nacre:plugin/reader@0.1.0#merge
func exportMerge(
	method unsafe.Pointer, methodBytes uint32, path unsafe.Pointer, pathBytes uint32,
	query unsafe.Pointer, queryBytes uint32, headers unsafe.Pointer, headerCount uint32,
	body unsafe.Pointer, bodyBytes uint32, now uint64, partials unsafe.Pointer, partialCount uint32,
) unsafe.Pointer {
	request := liftRequest(method, methodBytes, path, pathBytes, query, queryBytes, headers, headerCount, body, bodyBytes, now)
	responses := make([]Response, partialCount)
	for index, from := range liftRecords(partials, partialCount, 32) {
		responses[index] = Response{from.half(0), from.headers(4), from.bytes(12), from.optional(20)}
	}
	lifted()
	holdHost := unlockHost()
	response, err := merge(request, responses)
	holdHost()
	return giveResponse(response, err)
}

// The interface `timer-handler`.

//go:wasmexport nacre:plugin/timer-handler@0.1.0#on-timer
func exportOnTimer(now uint64, due unsafe.Pointer, dueCount uint32) unsafe.Pointer {
	timers := make([]Timer, dueCount)
	for index, from := range liftRecords(due, dueCount, 32) {
		timers[index] = Timer{from.text(4), liftTime(from.long(16)), from.bytes(24)}
	}
	lifted()
	holdHost := unlockHost()
	err := takeTimers(liftTime(now), timers)
	holdHost()
	if err != nil {
		return writeFault(err, 1)
	}
	return writeResult(0)
}

// After each call with a result, the host reports that it has read the result.

//go:wasmexport cabi_post_nacre:plugin/lifecycle@0.1.0#describe
func postDescribe(unsafe.Pointer) { release() }

//go:wasmexport cabi_post_nacre:plugin/lifecycle@0.1.0#init
func postInit(unsafe.Pointer) { release() }

//go:wasmexport cabi_post_nacre:plugin/feed@0.1.0#on-batch
func postOnBatch(unsafe.Pointer) { release() }

//go:wasmexport cabi_post_nacre:plugin/feed@0.1.0#rollback
func postRollback(unsafe.Pointer) { release() }

//go:wasmexport cabi_post_nacre:plugin/reader@0.1.0#handle
func postHandle(unsafe.Pointer) { release() }

//go:wasmexport cabi_post_nacre:plugin/reader@0.1.0#more
func postMore(unsafe.Pointer) { release() }

//go:wasmexport cabi_post_nacre:plugin/reader@0.1.0#merge
func postMerge(unsafe.Pointer) { release() }

//go:wasmexport cabi_post_nacre:plugin/timer-handler@0.1.0#on-timer
func postOnTimer(unsafe.Pointer) { release() }

// The interface `state`.

//go:wasmimport nacre:plugin/state@0.1.0 get
func importStateGet(key unsafe.Pointer, keyBytes uint32, answer unsafe.Pointer)

//go:wasmimport nacre:plugin/state@0.1.0 put
func importStatePut(key unsafe.Pointer, keyBytes uint32, value unsafe.Pointer, valueBytes uint32)

//go:wasmimport nacre:plugin/state@0.1.0 delete
func importStateDelete(key unsafe.Pointer, keyBytes uint32)

//go:wasmimport nacre:plugin/state@0.1.0 scan
func importStateScan(
	start unsafe.Pointer, startBytes uint32, end unsafe.Pointer, endBytes uint32,
	limit uint32, reverse uint32, answer unsafe.Pointer,
)

// result is the address of an import's result.
func result() record { return record{unsafe.Pointer(&answered)} }

func stateGet(key string) ([]byte, bool) {
	defer beginImport()()
	start, size := lowerKey(key)
	importStateGet(start, size, result().start)
	return result().optional(0), result().byte(0) == 1
}

func statePut(key string, value []byte) {
	defer beginImport()()
	start, size := lowerKey(key)
	from, valueBytes := lowerBytes(value)
	importStatePut(start, size, from, valueBytes)
}

func stateDelete(key string) {
	defer beginImport()()
	start, size := lowerKey(key)
	importStateDelete(start, size)
}

func stateScan(start, end string, limit uint32, reverse bool) []Entry {
	defer beginImport()()
	first, firstBytes := lowerKey(start)
	last, lastBytes := lowerKey(end)
	importStateScan(first, firstBytes, last, lastBytes, limit, flag(reverse), result().start)
	found := result().records(0, 16)
	entries := make([]Entry, len(found))
	for index, from := range found {
		entries[index] = Entry{from.text(0), from.bytes(8)}
	}
	return entries
}

// The interfaces `log` and `metrics`.

//go:wasmimport nacre:plugin/log@0.1.0 write
func importLogWrite(level uint32, message unsafe.Pointer, messageBytes uint32)

//go:wasmimport nacre:plugin/metrics@0.1.0 add
func importMetricsAdd(name unsafe.Pointer, nameBytes uint32, delta float64)

//go:wasmimport nacre:plugin/metrics@0.1.0 set
func importMetricsSet(name unsafe.Pointer, nameBytes uint32, value float64)

func logWrite(level uint32, message string) {
	defer beginImport()()
	start, size := lowerText(message)
	importLogWrite(level, start, size)
}

func metricsAdd(name string, delta float64) {
	defer beginImport()()
	start, size := lowerText(name)
	importMetricsAdd(start, size, delta)
}

func metricsSet(name string, value float64) {
	defer beginImport()()
	start, size := lowerText(name)
	importMetricsSet(start, size, value)
}

// The interface `timer`.

//go:wasmimport nacre:plugin/timer@0.1.0 set
func importTimerSet(name unsafe.Pointer, nameBytes uint32, due uint64, payload unsafe.Pointer, payloadBytes uint32)

//go:wasmimport nacre:plugin/timer@0.1.0 cancel
func importTimerCancel(name unsafe.Pointer, nameBytes uint32) uint32

//go:wasmimport nacre:plugin/timer@0.1.0 is-set
func importTimerIsSet(name unsafe.Pointer, nameBytes uint32) uint32

func timerSet(name string, due uint64, payload []byte) {
	defer beginImport()()
	start, size := lowerText(name)
	from, payloadBytes := lowerBytes(payload)
	importTimerSet(start, size, due, from, payloadBytes)
}

func timerCancel(name string) {
	defer beginImport()()
	start, size := lowerText(name)
	importTimerCancel(start, size)
}

func timerIsSet(name string) bool {
	defer beginImport()()
	start, size := lowerText(name)
	return importTimerIsSet(start, size) == 1
}

// The interface `turn`.

//go:wasmimport nacre:plugin/turn@0.1.0 begin
func importTurnBegin(index uint32)

//go:wasmimport nacre:plugin/turn@0.1.0 failed
func importTurnFailed(index uint32, message unsafe.Pointer, messageBytes uint32)

func turnBegin(index uint32) {
	defer beginImport()()
	importTurnBegin(index)
}

func turnFailed(index uint32, message string) {
	defer beginImport()()
	start, size := lowerText(message)
	importTurnFailed(index, start, size)
}

// The interface `http-out`.

//go:wasmimport nacre:plugin/http-out@0.1.0 send
func importHTTPSend(
	method unsafe.Pointer, methodBytes uint32, url unsafe.Pointer, urlBytes uint32,
	headers unsafe.Pointer, headerCount uint32, body unsafe.Pointer, bodyBytes uint32, answer unsafe.Pointer,
)

// Reasons of a failure, in the order of the cases.
var httpErrors = [...]error{ErrDenied, ErrTimeout, ErrTooLarge, ErrFailed}

func httpSend(method, url string, headers []Header, body []byte) (Response, error) {
	defer beginImport()()
	verb, verbBytes := lowerText(method)
	place, placeBytes := lowerText(url)
	list, count := lowerHeaders(headers)
	from, bodyBytes := lowerBytes(body)
	importHTTPSend(verb, verbBytes, place, placeBytes, list, count, from, bodyBytes, result().start)
	if result().byte(0) != 0 {
		return Response{}, result().refusal(4, httpErrors[:])
	}
	return Response{Status: result().half(4), Headers: result().headers(8), Body: result().bytes(16)}, nil
}

// refusal returns the error of a variant at that offset. Only some cases have a message; the others leave the memory unchanged.
func (from record) refusal(at uint32, kinds []error) error {
	kind := kinds[from.byte(at)]
	switch kind {
	case ErrDenied, ErrFailed, ErrTemporary, ErrInvalid, ErrPath:
		return &refusal{kind, from.text(at + 4)}
	}
	return &refusal{kind, ""}
}

// The interface `kv`.

//go:wasmimport nacre:plugin/kv@0.1.0 get
func importKVGet(space unsafe.Pointer, spaceBytes uint32, key unsafe.Pointer, keyBytes uint32, answer unsafe.Pointer)

//go:wasmimport nacre:plugin/kv@0.1.0 get-many
func importKVGetMany(space unsafe.Pointer, spaceBytes uint32, keys unsafe.Pointer, keyCount uint32, answer unsafe.Pointer)

//go:wasmimport nacre:plugin/kv@0.1.0 insert
func importKVInsert(
	space unsafe.Pointer, spaceBytes uint32, key unsafe.Pointer, keyBytes uint32,
	body unsafe.Pointer, bodyBytes uint32, flags uint32, expiry uint32, answer unsafe.Pointer,
)

//go:wasmimport nacre:plugin/kv@0.1.0 upsert
func importKVUpsert(
	space unsafe.Pointer, spaceBytes uint32, key unsafe.Pointer, keyBytes uint32,
	body unsafe.Pointer, bodyBytes uint32, flags uint32, expiry uint32, answer unsafe.Pointer,
)

//go:wasmimport nacre:plugin/kv@0.1.0 replace
func importKVReplace(
	space unsafe.Pointer, spaceBytes uint32, key unsafe.Pointer, keyBytes uint32,
	body unsafe.Pointer, bodyBytes uint32, flags uint32, expiry uint32,
	hasCAS uint32, cas uint64, answer unsafe.Pointer,
)

//go:wasmimport nacre:plugin/kv@0.1.0 remove
func importKVRemove(
	space unsafe.Pointer, spaceBytes uint32, key unsafe.Pointer, keyBytes uint32,
	hasCAS uint32, cas uint64, answer unsafe.Pointer,
)

//go:wasmimport nacre:plugin/kv@0.1.0 counter
func importKVCounter(
	space unsafe.Pointer, spaceBytes uint32, key unsafe.Pointer, keyBytes uint32,
	delta int64, hasInitial uint32, initial uint64, expiry uint32, answer unsafe.Pointer,
)

//go:wasmimport nacre:plugin/kv@0.1.0 touch
func importKVTouch(
	space unsafe.Pointer, spaceBytes uint32, key unsafe.Pointer, keyBytes uint32,
	expiry uint32, answer unsafe.Pointer,
)

//go:wasmimport nacre:plugin/kv@0.1.0 lookup-in
func importKVLookupIn(
	space unsafe.Pointer, spaceBytes uint32, key unsafe.Pointer, keyBytes uint32,
	specs unsafe.Pointer, specCount uint32, answer unsafe.Pointer,
)

//go:wasmimport nacre:plugin/kv@0.1.0 mutate-in
func importKVMutateIn(
	space unsafe.Pointer, spaceBytes uint32, key unsafe.Pointer, keyBytes uint32,
	specs unsafe.Pointer, specCount uint32, mode uint32, hasCAS uint32, cas uint64,
	hasExpiry uint32, expiry uint32, hasFlags uint32, flags uint32, answer unsafe.Pointer,
)

// Reasons of a failure, in the order of the cases.
var kvErrors = [...]error{
	ErrNotFound, ErrExists, ErrCASMismatch, ErrTooLarge, ErrLocked, ErrTemporary, ErrDenied, ErrInvalid, ErrPath,
}

// A document must be there.
const modeReplace = 2

func (from record) document() (Document, error) {
	if from.byte(0) != 0 {
		return Document{}, from.refusal(8, kvErrors[:])
	}
	isJSON := from.byte(32)&DatatypeJSON != 0
	return Document{from.bytes(8), from.long(16), from.word(24), from.word(28), isJSON}, nil
}

// version returns the result of a write.
func (from record) version() (uint64, error) {
	if from.byte(0) != 0 {
		return 0, from.refusal(8, kvErrors[:])
	}
	return from.long(8), nil
}

func kvGet(keyspace, key string) (Document, error) {
	defer beginImport()()
	space, spaceBytes := lowerText(keyspace)
	start, size := lowerKey(key)
	importKVGet(space, spaceBytes, start, size, result().start)
	return result().document()
}

func kvGetMany(keyspace string, keys []string) ([]*Document, error) {
	defer beginImport()()
	space, spaceBytes := lowerText(keyspace)
	fields := make([]uint32, 0, 2*len(keys))
	for _, key := range keys {
		start, size := words(lowerKey(key))
		fields = append(fields, start, size)
	}
	list, count := lowerWords(fields, 2)
	importKVGetMany(space, spaceBytes, list, count, result().start)
	documents := make([]*Document, 0, len(keys))
	for _, from := range result().records(0, 40) {
		document, err := from.document()
		switch {
		case err == nil:
			documents = append(documents, &document)
		case err.(*refusal).kind == ErrNotFound:
			documents = append(documents, nil)
		default:
			return nil, err
		}
	}
	return documents, nil
}

func kvInsert(keyspace, key string, content Content) (uint64, error) {
	defer beginImport()()
	space, spaceBytes := lowerText(keyspace)
	start, size := lowerKey(key)
	body, bodyBytes := lowerBytes(content.Body)
	importKVInsert(space, spaceBytes, start, size, body, bodyBytes, content.Flags, content.Expiry, result().start)
	return result().version()
}

func kvUpsert(keyspace, key string, content Content) (uint64, error) {
	defer beginImport()()
	space, spaceBytes := lowerText(keyspace)
	start, size := lowerKey(key)
	body, bodyBytes := lowerBytes(content.Body)
	importKVUpsert(space, spaceBytes, start, size, body, bodyBytes, content.Flags, content.Expiry, result().start)
	return result().version()
}

func kvReplace(keyspace, key string, content Content, cas uint64) (uint64, error) {
	defer beginImport()()
	space, spaceBytes := lowerText(keyspace)
	start, size := lowerKey(key)
	body, bodyBytes := lowerBytes(content.Body)
	importKVReplace(space, spaceBytes, start, size, body, bodyBytes, content.Flags, content.Expiry,
		flag(cas != 0), cas, result().start)
	return result().version()
}

func kvRemove(keyspace, key string, cas uint64) (uint64, error) {
	defer beginImport()()
	space, spaceBytes := lowerText(keyspace)
	start, size := lowerKey(key)
	importKVRemove(space, spaceBytes, start, size, flag(cas != 0), cas, result().start)
	return result().version()
}

func kvCounter(keyspace, key string, delta int64, initial *uint64, expiry uint32) (Counted, error) {
	defer beginImport()()
	space, spaceBytes := lowerText(keyspace)
	start, size := lowerKey(key)
	var first uint64
	if initial != nil {
		first = *initial
	}
	importKVCounter(space, spaceBytes, start, size, delta, flag(initial != nil), first, expiry, result().start)
	value, err := result().version()
	if err != nil {
		return Counted{}, err
	}
	return Counted{value, result().long(16)}, nil
}

func kvTouch(keyspace, key string, expiry uint32) (uint64, error) {
	defer beginImport()()
	space, spaceBytes := lowerText(keyspace)
	start, size := lowerKey(key)
	importKVTouch(space, spaceBytes, start, size, expiry, result().start)
	return result().version()
}

func kvLookupIn(keyspace, key string, paths []string, xattr bool) ([]json.RawMessage, error) {
	defer beginImport()()
	space, spaceBytes := lowerText(keyspace)
	start, size := lowerKey(key)
	fields := make([]uint32, 0, 4*len(paths))
	for _, path := range paths {
		place, placeBytes := words(lowerText(path))
		fields = append(fields, 0, place, placeBytes, flag(xattr))
	}
	specs, specCount := lowerWords(fields, 4)
	importKVLookupIn(space, spaceBytes, start, size, specs, specCount, result().start)
	if _, err := result().version(); err != nil {
		return nil, err
	}
	found := result().records(16, 12)
	values := make([]json.RawMessage, len(found))
	for index, from := range found {
		if from.byte(0) == 0 {
			values[index] = from.bytes(4)
		}
	}
	return values, nil
}

func kvMutateIn(keyspace, key string, changes []Change, values [][]byte, cas uint64) (uint64, error) {
	defer beginImport()()
	space, spaceBytes := lowerText(keyspace)
	start, size := lowerKey(key)
	fields := make([]uint32, 0, 6*len(changes))
	for index, change := range changes {
		place, placeBytes := words(lowerText(change.Path))
		value, valueBytes := words(lowerBytes(values[index]))
		// Some operations work on the existing value.
		makesParents := change.Operation != PathRemove && change.Operation != PathReplace && change.Operation != ArrayInsert
		flags := flag(change.Xattr) | flag(makesParents)<<8
		fields = append(fields, uint32(change.Operation), place, placeBytes, value, valueBytes, flags)
	}
	specs, specCount := lowerWords(fields, 6)
	importKVMutateIn(space, spaceBytes, start, size, specs, specCount, modeReplace,
		flag(cas != 0), cas, 0, 0, 0, 0, result().start)
	return result().version()
}
