package nacre

import (
	"encoding/json"
	"net/url"
	"time"
)

// Header is a header of HTTP.
type Header struct {
	// Name is the name.
	Name string
	// Value is the value.
	Value string
}

// Request is a request, in the words of HTTP.
type Request struct {
	// Method is `GET`, `POST`, ….
	Method string
	// Path is the path below the deployment, starting with `/`, percent-decoded.
	Path string
	// Query is the query string as it came, without `?`.
	Query string
	// Headers are those that the host passes on, their names in lower case.
	Headers []Header
	// Body is the body.
	Body []byte
	// Now is when the request arrived.
	Now time.Time
}

// Arguments is the query string, decoded. What of it is malformed is left out.
func (request Request) Arguments() url.Values {
	arguments, _ := url.ParseQuery(request.Query)
	return arguments
}

// JSON parses the body into target, as [json.Unmarshal] does. It fails when the body is no JSON, or not of that type.
func (request Request) JSON(target any) error { return json.Unmarshal(request.Body, target) }

// Response is the answer to a request, or its beginning.
type Response struct {
	// Status is an HTTP status, 100 to 599; 0 is 200.
	Status uint16
	// Headers are the headers; those of the connection are the host's.
	Headers []Header
	// Body is the body, or the first piece of it.
	Body []byte
	// Cursor is what [Continuer] is called with when there is more of the body; nil when there is not.
	Cursor []byte
}

// JSON is an answer whose body is value as JSON. It fails when JSON cannot say it.
func JSON(status uint16, value any) (Response, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return Response{}, err
	}
	headers := []Header{{"content-type", "application/json"}}
	return Response{Status: status, Headers: headers, Body: body}, nil
}

// Chunk is a piece of a body.
type Chunk struct {
	// Body is the bytes.
	Body []byte
	// Cursor is what [Continuer] is called with when there is more; nil when there is not.
	Cursor []byte
}
