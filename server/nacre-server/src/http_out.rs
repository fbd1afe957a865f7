//! The requests that plugins send to hosts they were granted.

use nacre_plugin_host::{Http, HttpError, HttpRequest, HttpResponse};
use std::io::Read;
use std::time::Duration;
use ureq::Agent;
use ureq::config::Config;

/// A client that keeps connections and follows no redirections, which may lead to hosts that are not granted.
pub struct HttpClient {
    agent: Agent,
}

impl Default for HttpClient {
    fn default() -> HttpClient {
        let config = Config::builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            // A proxy of the environment would see what goes to the host, and might not reach it.
            .proxy(None)
            .build();
        HttpClient { agent: config.into() }
    }
}

impl Http for HttpClient {
    fn send(
        &self,
        request: &HttpRequest,
        bytes_max: usize,
        left: Duration,
    ) -> Result<HttpResponse, HttpError> {
        let HttpRequest { method, is_secure, host, port, target, headers, body } = request;
        let scheme = if *is_secure { "https" } else { "http" };
        let mut built = ureq::http::Request::builder()
            .method(method.as_str())
            .uri(format!("{scheme}://{host}:{port}{target}"));
        for (name, value) in headers {
            built = built.header(name, value);
        }
        let built = built.body(&body[..]).map_err(|error| HttpError::Denied(error.to_string()))?;
        let configured = self
            .agent
            .configure_request(built)
            .timeout_global(Some(left))
            .allow_non_standard_methods(true)
            .build();
        let mut answer = self.agent.run(configured).map_err(failure)?;
        let mut body = Vec::new();
        // One more than is allowed tells a body that is too large.
        let mut reader = answer.body_mut().as_reader().take(bytes_max as u64 + 1);
        reader.read_to_end(&mut body).map_err(|error| failure(ureq::Error::from(error)))?;
        if body.len() > bytes_max {
            return Err(HttpError::TooLarge);
        }
        let text = |value: &ureq::http::HeaderValue| {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        let headers = answer.headers().iter().map(|(name, value)| (name.to_string(), text(value)));
        Ok(HttpResponse { status: answer.status().as_u16(), headers: headers.collect(), body })
    }
}

fn failure(error: ureq::Error) -> HttpError {
    match error {
        ureq::Error::Timeout(_) => HttpError::Timeout,
        other => HttpError::Failed(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    /// Answers one connection with `answer`, or leaves it waiting until the client gives up.
    fn serve(answer: Option<&'static str>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 1024];
            let _ = stream.read(&mut asked);
            match answer {
                Some(answer) => drop(stream.write_all(answer.as_bytes())),
                // Until the client gives up.
                None => while stream.read(&mut asked).is_ok_and(|count| count > 0) {},
            }
        });
        port
    }

    fn send(port: u16) -> Result<HttpResponse, HttpError> {
        let request = HttpRequest {
            method: "POST".into(),
            is_secure: false,
            host: "127.0.0.1".into(),
            port,
            target: "/a?b".into(),
            headers: vec![("x-a".into(), "1".into())],
            body: b"hello".to_vec(),
        };
        HttpClient::default().send(&request, 10, Duration::from_millis(300))
    }

    #[test]
    fn answers_come_back_whatever_their_status() {
        let port = serve(Some("HTTP/1.1 404 No\r\nX-B: 2\r\nContent-Length: 2\r\n\r\nno"));
        let answer = send(port).unwrap();
        assert_eq!((answer.status, &answer.body[..]), (404, &b"no"[..]));
        assert!(answer.headers.contains(&("x-b".into(), "2".into())));
    }

    #[test]
    fn what_leads_elsewhere_is_not_followed() {
        let port = serve(Some(
            "HTTP/1.1 302 There\r\nLocation: http://example.com/\r\nContent-Length: 0\r\n\r\n",
        ));
        assert_eq!(send(port).unwrap().status, 302);
    }

    #[test]
    fn what_is_too_large_or_too_late_or_not_there_is_named() {
        let port = serve(Some("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n01234567890"));
        assert_eq!(send(port), Err(HttpError::TooLarge));
        assert_eq!(send(serve(None)), Err(HttpError::Timeout));
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert!(matches!(send(closed), Err(HttpError::Failed(_))));
    }
}
