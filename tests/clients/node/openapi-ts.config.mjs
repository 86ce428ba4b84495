// How the client for openapi.ts is made, of the server at OPENAPI_SERVER.
export default {
    input: `http://${process.env.OPENAPI_SERVER}/v1/openapi.json`,
    output: { path: 'http', module: { extension: '.js' } },
    logs: { level: 'silent' },
}
