// Judge pages that `nnbridge report` wrote, in headless Chromium: contents, console, requests, axe-core in both themes,
// overflow on a phone, names that try to become markup, keys, search, filter, printing, forced colours.
//
//   npm install --prefix FOLDER puppeteer-core axe-core
//   node scripts/documentation/check_report.mjs --modules FOLDER [--chromium /usr/bin/chromium] [--shots FOLDER] PAGE.html ...
//
// One line for each finding; the exit status is 1 if there is one. --shots writes a screenshot of each theme and width.
import { createRequire } from "node:module";
import { basename, join, resolve } from "node:path";
import { mkdirSync, readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const { values: options, positionals: pages } = parseArgs({
  allowPositionals: true,
  options: {
    modules: { type: "string", default: "." },
    chromium: { type: "string", default: "/usr/bin/chromium" },
    shots: { type: "string" },
  },
});
if (!pages.length) {
  console.error("no page given; the first lines of this script have its use");
  process.exit(2);
}
const required = createRequire(join(resolve(options.modules), "package.json"));
const puppeteer = required("puppeteer-core");
const axe = readFileSync(required.resolve("axe-core/axe.min.js"), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
if (options.shots) mkdirSync(options.shots, { recursive: true });

let findings = 0;
const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** A page in a theme and a width; what goes wrong while it is open is a finding. */
async function visit(browser, path, { scheme, width, forced = false, axeIn = false }, examine) {
  const where = `${basename(path)} ${scheme} ${width}${forced ? " forced colours" : ""}`;
  const finding = (text) => {
    findings++;
    console.log(`${where}: ${text}`);
  };
  const page = await browser.newPage();
  if (axeIn) await page.setBypassCSP(true);
  await page.setViewport({ width, height: 900 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  if (forced) {
    const session = await page.createCDPSession();
    await session.send("Emulation.setEmulatedMedia", { features: [{ name: "forced-colors", value: "active" }, { name: "prefers-color-scheme", value: scheme }] });
  }
  page.on("console", (message) => finding(`console ${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => finding(`error: ${error.message}`));
  page.on("dialog", (dialog) => {
    finding(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => {
    if (!/^(file:|data:|blob:)/.test(request.url())) finding(`request of ${request.url()}`);
  });
  await page.goto(pathToFileURL(resolve(path)).href);
  try {
    await page.waitForFunction(() => window.__ready, { timeout: 20000 });
    await examine(page, finding);
  } catch (error) {
    finding(`stopped: ${error.message}`);
  }
  await page.close();
}

async function violations(page, finding) {
  await page.evaluate(axe);
  const found = await page.evaluate(async (rules) => {
    const { violations } = await axe.run(document, { runOnly: rules });
    return violations.map((v) => `axe ${v.id} (${v.impact}) ×${v.nodes.length}: ${v.nodes[0].target} ${v.nodes[0].failureSummary.split("\n")[1] || ""}`);
  }, RULES);
  found.forEach(finding);
}

async function contents(page, finding) {
  const facts = await page.evaluate(() => {
    const data = JSON.parse(document.getElementById("data").textContent);
    return {
      heading: document.querySelector("h1").textContent,
      operations: data.ops.length,
      rows: +document.querySelector("#ops .vt").getAttribute("aria-rowcount") - 1,
      sections: [...document.querySelectorAll("main section")].map((s) => s.id),
      foreign: document.querySelectorAll("main img, main iframe, main script, main a[href^='http']").length,
      bold: [...document.querySelectorAll("main b")].filter((b) => b.textContent === "bold").length,
      undefined: /\bundefined\b|\bNaN\b|\[object/.test(document.querySelector("main").innerText),
    };
  });
  if (!/^On .+\.$/.test(facts.heading)) finding(`verdict: ${facts.heading}`);
  if (facts.rows !== facts.operations) finding(`${facts.rows} rows for ${facts.operations} operations`);
  for (const id of ["strip", "why", "graph", "ops", "acc", "parts", "work", "io", "made"])
    if (!facts.sections.includes(id)) finding(`no section ${id}`);
  if (facts.foreign || facts.bold) finding("a name became markup");
  if (facts.undefined) finding("undefined, NaN or an object in the text");
  return facts;
}

async function overflow(page, finding) {
  const { wide, names } = await page.evaluate(() => {
    const root = document.documentElement;
    const out = [...document.querySelectorAll("main *")].filter((e) => {
      const box = e.getBoundingClientRect();
      return box.right > innerWidth + 1 && box.width > 0 && !e.closest(".vh, .nav, .row");
    });
    const sideways = [...document.querySelectorAll("main .scroll, main .vt")].filter((e) => e.scrollWidth > e.clientWidth + 1);
    return { wide: root.scrollWidth - innerWidth, names: [...out, ...sideways].slice(0, 3).map((e) => `${e.tagName}.${e.className}`) };
  });
  if (wide > 0) finding(`the page is ${wide} px wider than the screen`);
  if (names.length) finding(`wider than the screen: ${names.join(", ")}`);
}

async function keyboard(page, finding, operations) {
  const selected = () => page.evaluate(() => +(/#op=(\d+)/.exec(location.hash) || [0, -1])[1]);
  const press = async (key) => {
    await page.keyboard.press(key);
    await wait(40);
    return selected();
  };
  await page.evaluate(() => document.activeElement.blur());
  if ((await press("n")) < 0) finding("n selects nothing");
  const details = await page.$eval(".insp h3", (e) => e.textContent);
  if (!/operation \d+$/.test(details)) finding(`details: ${details}`);
  if (operations > 1) {
    const first = await selected();
    if ((await press("n")) === first) finding("n stays where it is");
    if ((await press("p")) !== first) finding("p does not go back");
  }
  await page.keyboard.press("/");
  const type = await page.evaluate(() => JSON.parse(document.getElementById("data").textContent).types[0]);
  if (!(await page.evaluate(() => document.activeElement.id === "q"))) finding("/ does not go to the search");
  await page.keyboard.type("0");
  await wait(250);
  if (!/hit/.test(await page.$eval(".hits", (e) => e.textContent))) finding(`no hits shown (${type})`);
  await page.keyboard.press("Escape");
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("?");
  await wait(60);
  if (!(await page.$eval("#keys", (e) => e.open))) finding("? does not open the list of keys");
  await page.click("#keys input[type=checkbox]");
  await page.evaluate(() => document.getElementById("keys").close());
  await page.evaluate(() => document.activeElement.blur());
  const before = await selected();
  if ((await press("n")) !== before) finding("single-letter keys cannot be switched off");
  await page.evaluate(() => localStorage.clear());
}

const browser = await puppeteer.launch({
  executablePath: options.chromium,
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"],
});
for (const path of pages) {
  const name = basename(path, ".html");
  const shot = (page, kind, whole = true) => options.shots && page.screenshot({ path: join(options.shots, `${name}-${kind}.png`), fullPage: whole });
  for (const scheme of ["light", "dark"]) {
    await visit(browser, path, { scheme, width: 1440 }, async (page, finding) => {
      const facts = await contents(page, finding);
      await shot(page, `1440-${scheme}`);
      if (scheme !== "light") return;
      console.log(`${name}: ${facts.heading}`);
      await keyboard(page, finding, facts.operations);
      await page.pdf({ format: "A4", printBackground: true, preferCSSPageSize: true });
      if (!(await page.$("#ops .row"))) finding("no rows after printing");
      await page.evaluate(() => document.querySelector(".gzoom button:nth-child(3)").click());
      await wait(200);
      if (options.shots) await (await page.$("#graph")).screenshot({ path: join(options.shots, `${name}-map.png`) });
    });
    await visit(browser, path, { scheme, width: 1440, axeIn: true }, violations);
    await visit(browser, path, { scheme, width: 390, axeIn: true }, async (page, finding) => {
      await overflow(page, finding);
      await shot(page, `390-${scheme}`);
      await violations(page, finding);
    });
  }
  await visit(browser, path, { scheme: "light", width: 1440, forced: true }, async (page) => {
    await shot(page, "forced", false);
  });
}
await browser.close();
console.log(findings ? `${findings} findings` : "no findings");
process.exit(findings ? 1 : 0);
