"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const grid = document.getElementById("cards"), zoom = document.getElementById("zoom");
const controls = Object.fromEntries(["label", "state", "sort", "least", "text"].map(id => [id, document.getElementById(id)]));
const PAGE = 100, NONE = data.none, keys = "123456789abcdefghijklmnopqrstuvwxyz";
const folder = decodeURIComponent(new URL(".", document.baseURI).pathname).replace(/^\/([A-Za-z]:\/)/, "$1");
const store = `fslstm ${data.model} ${folder}`;
let said = {}, shown = [], drawn = 0;
try { said = JSON.parse(localStorage.getItem(store)) || {}; } catch { /* a browser that keeps nothing */ }
const classes = () => [...new Set([...data.classes, NONE, ...Object.values(said)])];
const labelOf = row => said[row.path] ?? row.label;
const certainty = row => row.label === row.likeliest || row.label === NONE ? row.probability : 1;
const absolute = path => /^(\/|[A-Za-z]:)/.test(path) ? path : folder + path;
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};
const address = path => "file://" + encodeURI(absolute(path).replace(/#xywh=[^#]*$/, "").replace(/^([A-Za-z]:)/, "/$1")).replace(/[?#]/g, encodeURIComponent);

const inPage = image => "data:image/jpeg;base64," + image;
const MISSING = "not there, or of a kind that this browser does not show";

const states = {
  all: () => true,
  open: row => !(row.path in said),
  done: row => row.path in said,
  changed: row => row.path in said && said[row.path] !== row.label,
  unsure: row => row.sure === false,
};

// The same random order each time: the FNV-1a hash of a path, mixed.
function number(path) {
  let hash = 2166136261;
  for (const letter of path) hash = Math.imul(hash ^ letter.codePointAt(0), 16777619);
  hash = Math.imul(hash ^ (hash >>> 15), 2246822519);
  return (hash ^ (hash >>> 13)) >>> 0;
}

function select() {
  const text = controls.text.value.toLowerCase(), least = controls.least.value / 100, state = states[controls.state.value];
  shown = data.rows.filter(row => (!controls.label.value || labelOf(row) === controls.label.value)
    && certainty(row) <= least && (row.path + " " + row.likeliest).toLowerCase().includes(text) && state(row));
  const order = { least: (a, b) => certainty(a) - certainty(b), most: (a, b) => certainty(b) - certainty(a),
    name: (a, b) => a.path < b.path ? -1 : 1, random: (a, b) => number(a.path) - number(b.path) }[controls.sort.value];
  shown.sort(order);
  grid.replaceChildren();
  drawn = 0;
  more();
  count();
}

function more() {
  grid.append(...shown.slice(drawn, drawn + PAGE).map(card));
  drawn = Math.min(drawn + PAGE, shown.length);
  document.getElementById("more").hidden = drawn === shown.length;
}

function confirmOthers() {
  const others = [...grid.children].filter(item => !(item.row.path in said));
  if (!others.length || !confirm(`Are the labels of the ${others.length} other pictures shown right?`)) return;
  for (const item of others) said[item.row.path] = item.row.label;
  keep();
  others.forEach(mark);
  count();
}

function keep() {
  try { localStorage.setItem(store, JSON.stringify(said)); } catch { /* kept until the page is closed */ }
}

function count() {
  const number = Object.keys(said).length, button = document.getElementById("save");
  button.disabled = !number;
  button.textContent = `Save corrections.csv (${number})`;
  document.getElementById("count").textContent = `${shown.length} of ${data.rows.length} pictures`;
}

function card(row) {
  const item = make("li", { class: "card", tabindex: "0" });
  item.row = row;
  const image = make("img", { class: "new", loading: "lazy", alt: row.name, src: row.image ? inPage(row.image) : address(row.path) });
  image.addEventListener("error", () => image.replaceWith(make("span", { class: "new gone" }, MISSING)));
  image.addEventListener("click", () => enlarge(row));
  const pair = make("div", { class: "pair" }, image);
  if (row.near !== null) {
    const near = data.near[row.near];
    const picture = near.image ? make("img", { alt: near.name, src: inPage(near.image) }) : make("span", { class: "gone" }, "not there");
    pair.append(make("figure", { class: "near", title: near.name }, picture, make("figcaption", {}, near.label)));
  }
  const share = Math.round(100 * row.probability);
  const sure = make("span", { class: "sure" }, `${share} % ${row.likeliest}`);
  sure.style.setProperty("--share", `${share}%`);
  item.append(pair, sure);
  for (const line of [row.others, row.why]) if (line) item.append(make("div", {}, line));
  const choice = make("select", { "aria-label": `Label of ${row.name}` });
  choice.addEventListener("change", () => {
    const label = choice.value === "" ? (prompt("New class:") || "").trim() : choice.value;
    if (label) set(item, label); else mark(item);
  });
  const confirm = make("button", { type: "button", title: "The label is right (space)" }, "✓");
  confirm.addEventListener("click", () => toggle(item));
  item.append(make("div", { class: "row" }, choice, confirm), make("div", { class: "soft", title: row.path }, row.name));
  mark(item);
  return item;
}

function mark(item) {
  const row = item.row, choice = item.querySelector("select"), now = labelOf(row);
  choice.replaceChildren(...classes().map(name => make("option", { value: name }, name)), make("option", { value: "" }, "new class …"));
  choice.value = now;
  item.classList.toggle("confirmed", said[row.path] === row.label);
  item.classList.toggle("corrected", row.path in said && said[row.path] !== row.label);
}

function set(item, label) {
  if (label === undefined) delete said[item.row.path]; else said[item.row.path] = label;
  keep();
  mark(item);
  count();
}

function toggle(item) {
  set(item, item.row.path in said ? undefined : item.row.label);
}

function enlarge(row) {
  const image = make("img", { alt: row.name, src: address(row.path) });
  image.addEventListener("error", () => {
    image.replaceWith(make("p", {}, `${row.path} is ${MISSING}.`));
    if (row.image) zoom.prepend(make("img", { alt: row.name, src: inPage(row.image) }));
  });
  zoom.replaceChildren(image, make("p", {}, `${row.name}: ${labelOf(row)}`));
  zoom.showModal();
}

// As update --add reads it: a label that a spreadsheet would compute begins with an apostrophe.
const cell = text => '"' + text.replaceAll('"', '""') + '"';
const guarded = text => /^[=+\-@']/.test(text) ? "'" + text : text;
const table = () => ["path,label", ...Object.entries(said).map(([path, label]) => cell(absolute(path)) + "," + cell(guarded(label)))].join("\r\n") + "\r\n";

function save() {
  const link = make("a", { download: "corrections.csv", href: URL.createObjectURL(new Blob([table()], { type: "text/csv" })) });
  link.click();
  URL.revokeObjectURL(link.href);
}

function move(item, key) {
  const all = [...grid.children], place = all.indexOf(item);
  const columns = getComputedStyle(grid).gridTemplateColumns.split(" ").length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[key];
  if (place + step >= all.length && drawn < shown.length) more();
  const next = grid.children[place + step];
  if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
}

grid.addEventListener("keydown", event => {
  const item = event.target;
  if (!item.classList.contains("card") || event.ctrlKey || event.metaKey || event.altKey) return;
  const name = classes()[keys.indexOf(event.key)];
  if (event.key.startsWith("Arrow")) move(item, event.key);
  else if (event.key === " ") { toggle(item); move(item, "ArrowRight"); }
  else if (event.key === "Enter") enlarge(item.row);
  else if (event.key.length === 1 && name !== undefined) { set(item, name); move(item, "ArrowRight"); }
  else return;
  event.preventDefault();
});
for (const control of Object.values(controls)) control.addEventListener("input", select);
document.getElementById("save").addEventListener("click", save);
document.getElementById("more").addEventListener("click", more);
document.getElementById("others").addEventListener("click", confirmOthers);
zoom.addEventListener("click", () => zoom.close());
const counts = {};
for (const row of data.rows) counts[row.label] = (counts[row.label] || 0) + 1;
controls.label.append(...classes().map(name => make("option", { value: name }, `${name} (${counts[name] || 0})`)));
document.getElementById("keys").textContent = classes().slice(0, keys.length).map((name, place) => `${keys[place]} ${name}`).join(", ");
select();
