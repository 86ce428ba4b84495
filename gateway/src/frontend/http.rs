//! HTTP: health, so far.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Whether the process is starting or serving, or draining.
pub type Ready = watch::Receiver<bool>;

/// Serves until `ready` turns to false and open requests are answered.
pub async fn serve(listener: TcpListener, mut ready: Ready) -> std::io::Result<()> {
    let state = Arc::new(ready.clone());
    let app = Router::new().route("/healthz", get(|| async { "ok\n" })).route(
        "/readyz",
        get(move || {
            let ready = *state.borrow();
            async move {
                if ready {
                    (StatusCode::OK, "ready\n")
                } else {
                    (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
                }
            }
        }),
    );
    let drained = async move {
        let _ = ready.wait_for(|ready| !ready).await;
    };
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(drained)
        .await
}
