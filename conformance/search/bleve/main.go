// Bleve behind HTTP: indexes documents on disk and answers search requests, for `cargo xtask bench search`.
//
//		bleve-server ADDRESS
//
//	        POST /index?path=FOLDER   the body is a mapping; creates an index of kind scorch in place of the
//		previous one POST /documents           lines of {"id": …, "document": …}, one batch POST /query
//		a search request in the form of bleve and Couchbase Search GET  /count               the number of
//		documents
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"github.com/blevesearch/bleve/v2"
	_ "github.com/blevesearch/bleve/v2/config"
	"github.com/blevesearch/bleve/v2/index/scorch"
)

// lineBytesMax is the maximum length of a line of a batch.
const lineBytesMax = 64 << 20

// server has one index at a time. Requests that replace it come while there are no others.
type server struct {
	index bleve.Index
}

type line struct {
	ID       string         `json:"id"`
	Document map[string]any `json:"document"`
}

func (s *server) create(request *http.Request) (any, error) {
	mapping := bleve.NewIndexMapping()
	if err := json.NewDecoder(request.Body).Decode(mapping); err != nil {
		return nil, err
	}
	if s.index != nil {
		if err := s.index.Close(); err != nil {
			return nil, err
		}
	}
	index, err := bleve.NewUsing(request.URL.Query().Get("path"), mapping, scorch.Name, scorch.Name, nil)
	s.index = index
	return nil, err
}

func (s *server) documents(request *http.Request) (any, error) {
	batch := s.index.NewBatch()
	lines := bufio.NewScanner(request.Body)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		var line line
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, err
		}
		if err := batch.Index(line.ID, line.Document); err != nil {
			return nil, err
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return nil, s.index.Batch(batch)
}

func (s *server) query(request *http.Request) (any, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	search := new(bleve.SearchRequest)
	if err := json.Unmarshal(body, search); err != nil {
		return nil, err
	}
	return s.index.Search(search)
}

func (s *server) count(*http.Request) (any, error) {
	return s.index.DocCount()
}

// answering converts a function that can fail into a handler.
func (s *server) answering(answer func(*http.Request) (any, error)) http.HandlerFunc {
	return func(writer http.ResponseWriter, request *http.Request) {
		value, err := answer(request)
		if err == nil {
			writer.Header().Set("Content-Type", "application/json")
			err = json.NewEncoder(writer).Encode(value)
		}
		if err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
		}
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: bleve-server ADDRESS")
		os.Exit(2)
	}
	s := &server{}
	http.HandleFunc("POST /index", s.answering(s.create))
	http.HandleFunc("POST /documents", s.answering(s.documents))
	http.HandleFunc("POST /query", s.answering(s.query))
	http.HandleFunc("GET /count", s.answering(s.count))
	if err := http.ListenAndServe(os.Args[1], nil); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
}
