//! gRPC: the standard health service, so far.

use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::http::Ready;

/// Serves until `ready` turns to false and open requests are answered.
pub async fn serve(listener: TcpListener, mut ready: Ready) -> Result<(), tonic::transport::Error> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
    let drained = async move {
        let _ = ready.wait_for(|ready| !ready).await;
        reporter.set_service_status("", tonic_health::ServingStatus::NotServing).await;
    };
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Server::builder().add_service(health).serve_with_incoming_shutdown(incoming, drained).await
}
