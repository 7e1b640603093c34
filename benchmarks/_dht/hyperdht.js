// A swarm of hyperdht nodes on loopback, driven by lines on standard input: `dead 3 7`, `gets N SECONDS`, `stop`.
const createTestnet = require('hyperdht/testnet')
const readline = require('readline')

const [nodes, seed, values] = process.argv.slice(2).map(Number)
let state = seed * 2654435761 % 4294967296
const random = (n) => { state = (1664525 * state + 1013904223) % 4294967296; return Math.floor(state / 4294967296 * n) }
const say = (value) => console.log(JSON.stringify(value))

async function main () {
  const testnet = await createTestnet(nodes)
  // A node's number is its place here; `destroy` takes nobody out of our own copy.
  const all = testnet.nodes.slice()
  let live = all.slice()
  const hashes = []
  for (let i = 0; i < values; i++) {
    const { hash } = await live[random(live.length)].immutablePut(Buffer.from(`value ${seed} ${i}`))
    hashes.push(hash)
  }
  say({ event: 'ready' })
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...numbers] = line.split(' ')
    if (command === 'dead') {
      const doomed = new Set(numbers.map((number) => all[Number(number)]))
      live = live.filter((node) => !doomed.has(node))
      await Promise.all([...doomed].map((node) => node.destroy({ force: true })))
      say({ event: 'done' })
    } else if (command === 'gets') {
      const took = []
      const cpu = []
      const messages = []
      let found = 0
      const [count, seconds] = numbers.map(Number)
      const until = Date.now() + seconds * 1000
      for (let i = 0; i < count && Date.now() < until; i++) {
        const node = live[random(live.length)]
        const began = process.hrtime.bigint()
        const worked = process.cpuUsage()
        const sent = node.stats.requests.total
        const got = await node.immutableGet(hashes[random(hashes.length)]).catch(() => null)
        took.push(Number(process.hrtime.bigint() - began) / 1e6)
        const spent = process.cpuUsage(worked)
        cpu.push((spent.user + spent.system) / 1e3)
        messages.push(node.stats.requests.total - sent)
        if (got) found++
      }
      say({ event: 'gets', took, cpu, messages, found })
    } else break
  }
  process.exit(0)
}
main()
