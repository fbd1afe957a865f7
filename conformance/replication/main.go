// An independent side of a replication: it writes versions with their metadata to two clusters that replicate to each other, as another
// replication would, and reads both by DCP. It knows which version of each document has to win, and ends once both clusters have exactly
// these versions.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/couchbase/gocbcore/v10"
	"github.com/couchbase/gocbcore/v10/memd"
)

const (
	// Timeout until both clusters must be equal.
	patience = 5 * time.Minute
	// Requests on their way to one cluster.
	window = 64
	// A CAS of 2023, and the distance between two versions of a document.
	firstCas = uint64(1_700_000_000_000_000_000) &^ 0xffff
	casStep  = uint64(1) << 16
	// An expiry that no test lives to see: in 2096.
	expiry = 4_000_000_000
	// A producer that sends extended attributes.
	openFlags = memd.DcpOpenFlag(0x01 | 0x04)
	jsonBody  = 1
)

// A version of a document. A deletion has only a CAS and a revision.
type version struct {
	deleted       bool
	cas, rev      uint64
	flags, expiry uint32
	datatype      uint8
	value         string
}

// Returns true if the version wins over another one in a bucket whose conflicts are decided by revision.
func (v version) wins(other version) bool {
	if v.rev != other.rev {
		return v.rev > other.rev
	}
	return v.cas > other.cas
}

// A version that a cluster is to be given.
type write struct {
	side    int
	key     string
	version version
}

// Returns the writes of a document: one or two sides set it, and one may delete it.
func writesOf(number int) []write {
	key := fmt.Sprintf("k%d", number)
	set := func(side int, rev uint64, step uint64) write {
		body, datatype := fmt.Sprintf(`{"number":%d,"side":%d}`, number, side), uint8(jsonBody)
		if number%7 == 0 {
			body, datatype = fmt.Sprintf("document %d of side %d", number, side), 0
		}
		made := version{cas: firstCas + uint64(number)*8*casStep + step*casStep, rev: rev, value: body, datatype: datatype}
		made.flags = uint32(number)
		if number%6 == 0 {
			made.expiry = expiry
		}
		return write{side, key, made}
	}
	writes := []write{set(number%2, 1+uint64(number%3), 0)}
	if number%4 == 0 {
		// The other side has one of the same or of another revision.
		writes = append(writes, set(1-number%2, 1+uint64(number/4%3), 1))
	}
	if number%5 == 0 {
		last := writes[0].version
		gone := version{deleted: true, cas: last.cas + 2*casStep, rev: 10}
		writes = append(writes, write{number / 5 % 2, key, gone})
	}
	return writes
}

// A cluster with the newest version of each key, according to its history.
type cluster struct {
	agent *gocbcore.Agent
	dcp   *gocbcore.DCPAgent
	mutex sync.Mutex
	found map[string]version
}

func (c *cluster) put(key []byte, found version) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.found[string(key)] = found
}

func (c *cluster) Mutation(m gocbcore.DcpMutation) {
	c.put(m.Key, version{
		cas: m.Cas, rev: m.RevNo, flags: m.Flags, expiry: m.Expiry, datatype: m.Datatype, value: string(m.Value),
	})
}

func (c *cluster) Deletion(d gocbcore.DcpDeletion) {
	c.put(d.Key, version{deleted: true, cas: d.Cas, rev: d.RevNo})
}

func (c *cluster) Expiration(e gocbcore.DcpExpiration) {
	c.put(e.Key, version{deleted: true, cas: e.Cas, rev: e.RevNo})
}

func (c *cluster) End(end gocbcore.DcpStreamEnd, err error) {
	log.Fatalf("the stream of vBucket %d has ended: %v", end.VbID, err)
}

func (c *cluster) SnapshotMarker(gocbcore.DcpSnapshotMarker)           {}
func (c *cluster) CreateCollection(gocbcore.DcpCollectionCreation)     {}
func (c *cluster) DeleteCollection(gocbcore.DcpCollectionDeletion)     {}
func (c *cluster) FlushCollection(gocbcore.DcpCollectionFlush)         {}
func (c *cluster) CreateScope(gocbcore.DcpScopeCreation)               {}
func (c *cluster) DeleteScope(gocbcore.DcpScopeDeletion)               {}
func (c *cluster) ModifyCollection(gocbcore.DcpCollectionModification) {}
func (c *cluster) OSOSnapshot(gocbcore.DcpOSOSnapshot)                 {}
func (c *cluster) SeqNoAdvanced(gocbcore.DcpSeqNoAdvanced)             {}

// Waits until an agent has connected.
func wait(ready func(time.Time, gocbcore.WaitUntilReadyOptions, gocbcore.WaitUntilReadyCallback) (gocbcore.PendingOp, error)) {
	done := make(chan error, 1)
	_, err := ready(time.Now().Add(time.Minute), gocbcore.WaitUntilReadyOptions{},
		func(_ *gocbcore.WaitUntilReadyResult, err error) { done <- err })
	must(err)
	must(<-done)
}

// Connects to a cluster, and follows its whole history from the beginning.
func connect(connection, bucket string, login gocbcore.PasswordAuthProvider) *cluster {
	var config gocbcore.AgentConfig
	must(config.FromConnStr(connection))
	config.BucketName = bucket
	config.SecurityConfig.Auth = login
	config.IoConfig.UseCollections = true
	agent, err := gocbcore.CreateAgent(&config)
	must(err)
	wait(agent.WaitUntilReady)

	var reader gocbcore.DCPAgentConfig
	must(reader.FromConnStr(connection))
	reader.BucketName = bucket
	reader.SecurityConfig.Auth = login
	reader.IoConfig.UseCollections = true
	reader.EnableCCCPPoller = true
	reader.DCPConfig.UseExpiryOpcode = true
	dcp, err := gocbcore.CreateDcpAgent(&reader, "nacre-replication", openFlags)
	must(err)
	wait(dcp.WaitUntilReady)

	c := &cluster{agent: agent, dcp: dcp, found: map[string]version{}}
	snapshot, err := dcp.ConfigSnapshot()
	must(err)
	count, err := snapshot.NumVbuckets()
	must(err)
	for vbid := 0; vbid < count; vbid++ {
		opened := make(chan error, 1)
		_, err := dcp.OpenStream(uint16(vbid), 0, 0, 0, ^gocbcore.SeqNo(0), 0, 0, c, gocbcore.OpenStreamOptions{},
			func(_ []gocbcore.FailoverEntry, err error) { opened <- err })
		must(err)
		must(<-opened)
	}
	return c
}

// Sends a version. A cluster that keeps its own one answers that the document exists.
func (c *cluster) send(key string, of version) error {
	done := make(chan error, 1)
	var err error
	if of.deleted {
		options := gocbcore.DeleteMetaOptions{Key: []byte(key), Cas: gocbcore.Cas(of.cas), RevNo: of.rev}
		_, err = c.agent.DeleteMeta(options, func(_ *gocbcore.DeleteMetaResult, err error) { done <- err })
	} else {
		options := gocbcore.SetMetaOptions{
			Key: []byte(key), Value: []byte(of.value), Flags: of.flags, Expiry: of.expiry, Cas: gocbcore.Cas(of.cas), RevNo: of.rev,
		}
		_, err = c.agent.SetMeta(options, func(_ *gocbcore.SetMetaResult, err error) { done <- err })
	}
	if err == nil {
		err = <-done
	}
	if errors.Is(err, gocbcore.ErrDocumentExists) || errors.Is(err, gocbcore.ErrCasMismatch) {
		return nil
	}
	return err
}

// Returns up to `most` differences between what a cluster has and what it has to have.
func (c *cluster) differences(name string, expected map[string]version, most int) []string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var found []string
	for key, wanted := range expected {
		has, isThere := c.found[key]
		if len(found) == most || isThere && has == wanted {
			continue
		}
		found = append(found, fmt.Sprintf("%s: %s is %+v, not %+v", name, key, has, wanted))
	}
	if len(c.found) != len(expected) && len(found) < most {
		found = append(found, fmt.Sprintf("%s has %d keys, not %d", name, len(c.found), len(expected)))
	}
	return found
}

func main() {
	here := flag.String("here", "couchbase://127.0.0.1", "connection string of the first cluster")
	there := flag.String("there", "couchbase://127.0.0.1:21210", "connection string of the second cluster")
	user := flag.String("user", "Administrator", "user of both clusters")
	password := flag.String("password", "password", "password of that user")
	bucket := flag.String("bucket", "default", "name of the bucket in both clusters")
	keys := flag.Int("keys", 5000, "number of documents")
	flag.Parse()

	login := gocbcore.PasswordAuthProvider{Username: *user, Password: *password}
	clusters := [2]*cluster{connect(*here, *bucket, login), connect(*there, *bucket, login)}
	expected, deletions := map[string]version{}, 0
	var writers sync.WaitGroup
	permits := make(chan struct{}, window)
	for number := 0; number < *keys; number++ {
		writes := writesOf(number)
		winner := writes[0].version
		for _, write := range writes[1:] {
			if write.version.wins(winner) {
				winner = write.version
			}
		}
		expected[writes[0].key] = winner
		if winner.deleted {
			deletions++
		}
		permits <- struct{}{}
		writers.Add(1)
		go func() {
			defer writers.Done()
			for _, write := range writes {
				must(clusters[write.side].send(write.key, write.version))
			}
			<-permits
		}()
	}
	writers.Wait()

	begun := time.Now()
	for {
		different := append(clusters[0].differences("the first", expected, 5), clusters[1].differences("the second", expected, 5)...)
		if len(different) == 0 {
			break
		}
		if time.Since(begun) > patience {
			for _, line := range different {
				fmt.Println(line)
			}
			log.Fatal("the clusters differ")
		}
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Printf("both clusters have the same %d documents and %d deletions\n", len(expected)-deletions, deletions)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
