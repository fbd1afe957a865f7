// The performance of a cluster for an application with the official Go SDK.
//
//	evaluation -count N -durability LEVEL documents    one client inserts, updates, queries and deletes N documents
//	evaluation -seconds S curve                        many clients read and write; their throughput over time
//	evaluation -rate R waits                           R operations begin per second; their latency, by phases
//
// Each prints one line of JSON; "curve" and "waits" print "begun" before. A line of input starts a phase of "waits".
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/couchbase/gocb/v2"
)

const (
	// Clients of each kind.
	clients = 16
	// Documents that the clients use.
	documents = 1000
	// The time covered by one point of the curve.
	step = 100 * time.Millisecond
)

var levels = map[string]gocb.DurabilityLevel{
	"none":                     gocb.DurabilityLevelNone,
	"majority":                 gocb.DurabilityLevelMajority,
	"majorityAndPersistActive": gocb.DurabilityLevelMajorityAndPersistOnMaster,
	"persistToMajority":        gocb.DurabilityLevelPersistToMajority,
}

// Document is a stored document: about two hundred bytes of JSON.
type Document struct {
	Ordinal int    `json:"ordinal"`
	Name    string `json:"name"`
	Round   int    `json:"round"`
	Text    string `json:"text"`
}

func document(number, round int) Document {
	return Document{number, fmt.Sprintf("document %d", number), round, strings.Repeat("all work and no play ", 6)}
}

func main() {
	connection := flag.String("connection", "couchbase://127.0.0.1", "connection string")
	user := flag.String("user", "Administrator", "who logs in")
	password := flag.String("password", "password", "of the user")
	bucket := flag.String("bucket", "default", "where the documents are")
	count := flag.Int("count", 1000, "documents")
	durability := flag.String("durability", "none", "level of the writes")
	seconds := flag.Int("seconds", 30, "how long the curve is")
	rate := flag.Int("rate", 10000, "operations that begin in a second")
	flag.Parse()
	cluster, err := gocb.Connect(*connection, gocb.ClusterOptions{
		Authenticator: gocb.PasswordAuthenticator{Username: *user, Password: *password},
	})
	must(err)
	opened := cluster.Bucket(*bucket)
	must(opened.WaitUntilReady(time.Minute, nil))
	collection := opened.DefaultCollection()
	switch flag.Arg(0) {
	case "documents":
		say(timed(cluster, *bucket, collection, *count, levels[*durability]))
	case "curve":
		say(curve(collection, time.Duration(*seconds)*time.Second))
	case "waits":
		say(waits(collection, *rate))
	default:
		log.Fatalf("%q is neither documents nor curve nor waits", flag.Arg(0))
	}
}

// timed returns the milliseconds of each kind of operation for all documents, one after the other, and of the slowest one.
func timed(cluster *gocb.Cluster, bucket string, collection *gocb.Collection, count int, level gocb.DurabilityLevel) map[string]float64 {
	_, err := cluster.Query("CREATE INDEX by_ordinal IF NOT EXISTS ON `"+bucket+"`(ordinal)", nil)
	must(err)
	statement := "SELECT d.* FROM `" + bucket + "` AS d WHERE d.ordinal = $1"
	operations := []struct {
		name string
		do   func(number int) error
	}{
		{"insert", func(number int) error {
			_, err := collection.Insert(key(number), document(number, 0), &gocb.InsertOptions{DurabilityLevel: level})
			return err
		}},
		{"update", func(number int) error {
			_, err := collection.Replace(key(number), document(number, 1), &gocb.ReplaceOptions{DurabilityLevel: level})
			return err
		}},
		{"query", func(number int) error {
			result, err := cluster.Query(statement, &gocb.QueryOptions{PositionalParameters: []any{number}, Adhoc: false})
			if err != nil {
				return err
			}
			var found Document
			if err := result.One(&found); err != nil {
				return err
			}
			if found.Ordinal != number {
				return fmt.Errorf("asked for %d, got %+v", number, found)
			}
			return nil
		}},
		{"delete", func(number int) error {
			_, err := collection.Remove(key(number), &gocb.RemoveOptions{DurabilityLevel: level})
			return err
		}},
	}
	took := map[string]float64{}
	for _, operation := range operations {
		if operation.name == "query" {
			// The index has all earlier writes.
			_, err := cluster.Query(statement, &gocb.QueryOptions{
				PositionalParameters: []any{0}, ScanConsistency: gocb.QueryScanConsistencyRequestPlus,
			})
			must(err)
		}
		for number := range count {
			begun := time.Now()
			must(operation.do(number))
			each := float64(time.Since(begun).Microseconds()) / 1000
			took[operation.name] += each
			took["slowest"] = max(took["slowest"], each)
		}
	}
	return took
}

// curve returns the number of successful operations in each step of time.
func curve(collection *gocb.Collection, lasts time.Duration) map[string][]int64 {
	for number := range documents {
		_, err := collection.Upsert(key(number), document(number, 0), nil)
		must(err)
	}
	steps := int(lasts / step)
	reads, writes := make([]int64, steps), make([]int64, steps)
	begun := time.Now()
	fmt.Println("begun")
	var running sync.WaitGroup
	work := func(counts []int64, first int, do func(number int) error) {
		defer running.Done()
		for number := first; ; number++ {
			err := do(number % documents)
			at := int(time.Since(begun) / step)
			if at >= steps {
				return
			}
			if err == nil {
				atomic.AddInt64(&counts[at], 1)
			}
		}
	}
	for client := range clients {
		running.Add(2)
		go work(reads, client*documents/clients, func(number int) error {
			_, err := collection.Get(key(number), nil)
			return err
		})
		go work(writes, client*documents/clients, func(number int) error {
			_, err := collection.Upsert(key(number), document(number, 1), &gocb.UpsertOptions{
				DurabilityLevel: gocb.DurabilityLevelMajority,
			})
			return err
		})
	}
	running.Wait()
	return map[string][]int64{"reads": reads, "writes": writes}
}

func key(number int) string {
	return fmt.Sprintf("document-%d", number)
}

func say(what any) {
	text, err := json.Marshal(what)
	must(err)
	fmt.Println(string(text))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
