//! Serves Larder's kinds on a loopback socket until it is interrupted: `serve DATABASE|- ADDRESS KUBECONFIG`.
//!
//! Writes the kubeconfig and prints `listening on ADDRESS` once requests are answered.
#![expect(clippy::print_stdout, reason = "its output is how the caller learns the address")]

use std::{error::Error, net::SocketAddr};

use larder_localplane::{Config, Localplane, Tokens};
use secrecy::{ExposeSecret, SecretString};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [data, address, kubeconfig] = arguments.as_slice() else {
        return Err("usage: serve DATABASE|- ADDRESS KUBECONFIG".into());
    };
    let mut config = Config::new(larder_api::crds());
    config.data = (data != "-").then(|| data.into());
    let plane = Localplane::start(config).await?;
    let address: SocketAddr = address.parse()?;
    let token = SecretString::from(format!("{:032x}", rand::random::<u128>()));
    let listening = plane.listen(address, Tokens::admin(token.clone())).await?;
    std::fs::write(kubeconfig, listening.kubeconfig(&token).expose_secret())?;
    println!("listening on {}", listening.address());
    tokio::signal::ctrl_c().await?;
    plane.shutdown().await;
    listening.stopped().await;
    Ok(())
}
