//! The collector's answers to requests of HTTP.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Read as _;

use flate2::read::GzDecoder;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::{Inbox, Refusal};

/// Serves for as long as it is polled.
pub async fn serve(inbox: Inbox, listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let inbox = inbox.clone();
        let service = service_fn(move |request| {
            let inbox = inbox.clone();
            async move { Ok::<_, Infallible>(answer(&inbox, request).await) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(inbox: &Inbox, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    assert_eq!(head.method, "POST");
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let headers: BTreeMap<String, String> =
        head.headers.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect();
    let mut body = body.collect().await.expect("a whole body").to_bytes().to_vec();
    if headers.get("content-encoding").is_some_and(|encoding| encoding == "gzip") {
        let packed = std::mem::take(&mut body);
        GzDecoder::new(&*packed).read_to_end(&mut body).expect("gzip");
    }
    let (path, body) = (head.uri.path(), &*body);
    let taken = if path.ends_with("/v1/traces") {
        inbox.take_traces(path, headers, prost::Message::decode(body).expect("spans"))
    } else {
        inbox.take_metrics(path, headers, prost::Message::decode(body).expect("metrics"))
    };
    let mut answer = Response::new(Full::default());
    if let Err(Refusal { code, again_after }) = taken {
        *answer.status_mut() = code.try_into().expect("a status");
        if let Some(wait) = again_after {
            answer.headers_mut().insert("retry-after", wait.as_secs().into());
        }
    }
    answer
}
