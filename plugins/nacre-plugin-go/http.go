package nacre

// HTTP is the capability `http-out`: HTTP requests to the hosts that are granted to the deployment.
var HTTP httpCapability

type httpCapability struct{}

// Send sends a request and returns the response with any status. The URL is `https://host/path?query`, or `http:`.
//
// It fails with [ErrDenied], [ErrTimeout], [ErrTooLarge] or [ErrFailed].
func (httpCapability) Send(method, url string, headers []Header, body []byte) (Response, error) {
	acts()
	return httpSend(method, url, headers, body)
}
