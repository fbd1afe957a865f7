package nacre

import (
	"encoding/json"
	"net/url"
	"time"
)

// Header is an HTTP header.
type Header struct {
	// Name is the name.
	Name string
	// Value is the value.
	Value string
}

// Request is an HTTP request.
type Request struct {
	// Method is `GET`, `POST`, ….
	Method string
	// Path is the path below the deployment, starting with `/`, percent-decoded.
	Path string
	// Query is the raw query string, without `?`.
	Query string
	// Headers are those that the host passes on, their names in lower case.
	Headers []Header
	// Body is the body.
	Body []byte
	// Now is the time at which the request arrived.
	Now time.Time
}

// Arguments returns the decoded query string without malformed parts.
func (request Request) Arguments() url.Values {
	arguments, _ := url.ParseQuery(request.Query)
	return arguments
}

// JSON parses the body into target, as [json.Unmarshal] does. It fails if the body is not JSON or not of that type.
func (request Request) JSON(target any) error { return json.Unmarshal(request.Body, target) }

// Response is the response to a request, or the beginning of a streamed one.
type Response struct {
	// Status is an HTTP status, 100 to 599; 0 is 200.
	Status uint16
	// Headers are the headers; the host sets those of the connection.
	Headers []Header
	// Body is the body, or the first piece of it.
	Body []byte
	// Cursor is passed to [Continuer] for the next piece of the body; nil at the end.
	Cursor []byte
}

// JSON returns a response with value as JSON in its body. It fails if value cannot be encoded as JSON.
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
	// Body has the bytes.
	Body []byte
	// Cursor is passed to [Continuer] for the next piece; nil at the end.
	Cursor []byte
}
