// Load on a cluster under external faults, and a check of what its clients have observed.
//
// The program reads commands line by line, and answers each with one line or none:
//
//	round KEY…           new documents, and clients that work on them; "ready" once each was read and written
//	fault NAME [KEY…]    from now on, gaps of these documents belong to the fault; without keys, those of all
//	rest                 the clients end; "rested" and the round as JSON, once it was read again and checked
//	end                  reads and checks all documents of all rounds again: "ended" and the sums as JSON
//
// Documents whose names begin with a durability level must be linearizable registers: all answers about a document,
// at any time, must be possible for a single register. An operation with an unknown outcome may take effect at any
// time after it began. Documents whose names begin with "none" may lose writes, which are counted.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/couchbase/gocb/v2"
)

func main() {
	connection := flag.String("connection", "couchbase://127.0.0.1", "connection string")
	user := flag.String("user", "Administrator", "who logs in")
	password := flag.String("password", "password", "of the user")
	bucket := flag.String("bucket", "default", "where the documents are")
	history := flag.String("history", "", "file that all operations are written to, one a line")
	seed := flag.Int64("seed", 1, "decides which operations there are")
	verbose := flag.Bool("verbose", os.Getenv("NACRE_SDK_LOG") != "", "print what the SDK logs")
	flag.Parse()
	if *verbose {
		gocb.SetLogger(gocb.VerboseStdioLogger())
	}
	cluster, err := gocb.Connect(*connection, gocb.ClusterOptions{
		Authenticator: gocb.PasswordAuthenticator{Username: *user, Password: *password},
	})
	must(err)
	opened := cluster.Bucket(*bucket)
	must(opened.WaitUntilReady(time.Minute, nil))
	journal, err := newJournal(*history)
	must(err)
	load := &Load{documents: opened.DefaultCollection(), journal: journal, seed: *seed}
	orders := bufio.NewScanner(os.Stdin)
	orders.Buffer(nil, 1<<20)
	for orders.Scan() {
		words := strings.Fields(orders.Text())
		switch words[0] {
		case "round":
			load.begin(words[1:])
			fmt.Println("ready")
		case "fault":
			load.fault(words[1], words[2:])
		case "rest":
			answer("rested", load.rest())
		case "end":
			answer("ended", load.end())
			must(journal.close())
			return
		}
	}
}

func answer(word string, about any) {
	text, err := json.Marshal(about)
	must(err)
	fmt.Println(word, string(text))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
