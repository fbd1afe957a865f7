// Runs named steps with the official Node SDK in order; prints a line for each, and exits with 1 if any failed.
//
// The command line names the node, as `couchbase://127.0.0.1 Administrator password default`.
'use strict'

const couchbase = require('couchbase')

const [url, username, password, bucketName] = process.argv.slice(2)

/** Runs the steps. `setUp` creates their argument from the cluster; the argument's optional member `tidy` cleans up. */
async function runSteps(steps, setUp) {
  const cluster = await couchbase.connect(url, { username, password })
  const world = await setUp(cluster)
  let failed = 0
  for (const [name, step] of Object.entries(steps)) {
    try {
      await step(world)
      console.log(`ok   ${name}`)
    } catch (error) {
      failed += 1
      console.log(`FAIL ${name}: ${error.name} ${error.message}`)
    }
  }
  await world.tidy?.()
  await cluster.close()
  process.exitCode = failed ? 1 : 0
}

exports.bucketName = bucketName
exports.run = (steps, setUp) =>
  runSteps(steps, setUp).catch((error) => {
    console.error(error)
    process.exitCode = 1
  })
