// A swarm of hyperdht nodes on loopback, driven by lines on standard input: `dead N`, `gets N`, `stop`.
const createTestnet = require('hyperdht/testnet')
const readline = require('readline')

const [nodes, seed, values] = process.argv.slice(2).map(Number)
let state = seed * 2654435761 % 4294967296
const random = (n) => { state = (1664525 * state + 1013904223) % 4294967296; return Math.floor(state / 4294967296 * n) }
const say = (value) => console.log(JSON.stringify(value))

async function main () {
  const testnet = await createTestnet(nodes)
  let live = testnet.nodes.slice()
  const hashes = []
  for (let i = 0; i < values; i++) {
    const { hash } = await live[random(live.length)].immutablePut(Buffer.from(`value ${seed} ${i}`))
    hashes.push(hash)
  }
  say({ event: 'ready' })
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, count] = line.split(' ')
    if (command === 'dead') {
      for (let i = 0; i < Number(count); i++) {
        const [node] = live.splice(random(live.length), 1)
        await node.destroy({ force: true })
      }
      say({ event: 'done' })
    } else if (command === 'gets') {
      const took = []
      const cpu = []
      let found = 0
      for (let i = 0; i < Number(count); i++) {
        const node = live[random(live.length)]
        const began = process.hrtime.bigint()
        const worked = process.cpuUsage()
        const got = await node.immutableGet(hashes[random(hashes.length)]).catch(() => null)
        took.push(Number(process.hrtime.bigint() - began) / 1e6)
        const spent = process.cpuUsage(worked)
        cpu.push((spent.user + spent.system) / 1e3)
        if (got) found++
      }
      say({ event: 'gets', took, cpu, found })
    } else break
  }
  process.exit(0)
}
main()
