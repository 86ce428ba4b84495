//! What gateways of the same store nodes ask each other.

use std::sync::Arc;

use prost::Message;
use proto::fleet::v1::question::Body;
use proto::fleet::v1::{Answer, Kill, Question};
use store::client::Respondent;
use store_engine::CommandError;

use crate::server::Server;

/// Ends runs here and on all other gateways: those of the functions or those of scripts, and if `sha` is given only
/// those of that script. How many there were. An error: none here, and others could not be asked.
pub async fn kill(server: &Server, functions: bool, sha: Option<&str>) -> Result<usize, CommandError> {
    let kill = Kill { functions, sha: sha.unwrap_or_default().to_owned() };
    let killed = kill_here(server, &kill);
    let Some(cluster) = server.store.cluster() else { return Ok(killed) };
    let question = Question { body: Some(Body::Kill(kill)) };
    match cluster.gather(question.encode_to_vec().into()).await {
        Ok(answers) => {
            let counts = answers.into_iter().filter_map(|answer| Answer::decode(answer).ok());
            Ok(killed + counts.map(|answer| answer.count as usize).sum::<usize>())
        }
        Err(_) if killed > 0 => Ok(killed),
        Err(error) => Err(error),
    }
}

fn kill_here(server: &Server, kill: &Kill) -> usize {
    server
        .runs
        .kill(|who| who.function.is_some() == kill.functions && (kill.sha.is_empty() || who.name == kill.sha))
}

/// Answers the questions of others.
pub fn respondent(server: &Arc<Server>) -> Respondent {
    let server = Arc::downgrade(server);
    Box::new(move |question| {
        let body = Question::decode(question.clone()).ok().and_then(|question| question.body);
        match (server.upgrade(), body) {
            (Some(server), Some(Body::Kill(kill))) => {
                Answer { count: kill_here(&server, &kill) as u64 }.encode_to_vec().into()
            }
            _ => bytes::Bytes::new(),
        }
    })
}
