// A user of the console, in a real Chromium: logs in, reads, approves one request, rejects another. Pages on other origins try to
// show the console in a frame, or to press its buttons. The input is JSON; a failed assertion ends the script with an error.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { logsIn, opens, shoots } from './person.mjs';

const told = JSON.parse(process.argv[2]);
const { browser, context, page, problems } = await opens(told);

const shot = shoots(page, told);

// Without a login no content is visible.
await page.goto(`${told.url}/console/approvals`);
assert.equal(new URL(page.url()).pathname, '/console/login');
await shot('login');
await page.getByLabel(told.user ? 'API key' : 'Token (JWT)').fill('wrong');
await page.getByRole('button', { name: 'Log in' }).click();
await page.getByText('Login failed.').waitFor();
await logsIn(page, told);
assert.match(await page.title(), /^\(2\) Approvals/);
assert.equal(await page.evaluate(() => document.cookie), '', 'no script sees the cookie');

// The list has a line for each request; a line leads to its page.
await shot('approvals');
const list = `${told.url}/console/approvals`;
const opensRequest = async name => { await page.goto(list); await page.getByRole('link', { name }).click(); };
await opensRequest('Gmail send');

// The e-mail, as a user reads it.
const mail = page.getByRole('article', { name: 'Gmail send' });
const text = await mail.innerText();
for (const seen of ['Ann Lee <ann@example.org>', 'bob@bücher.example', 'bob@xn--bcher-kva.example', 'archive@example.org',
  'I am late', 'Dear Ann,\n\nI am late, by about ten minutes.', '<script>alert("planted")</script>', 'U+202E', 'Check carefully']) {
  assert.ok(text.includes(seen), `${JSON.stringify(seen)} is not in ${text}`);
}
assert.equal(await mail.locator('img, script').count(), 0);

// Its HTML is shown with its styles in a frame in which nothing runs, loads or opens.
const framed = page.frameLocator('iframe.message');
const heading = framed.getByRole('heading', { name: 'Dear Ann' });
assert.equal(await heading.evaluate(element => getComputedStyle(element).color), 'rgb(170, 0, 0)');
await framed.getByText('https://bank.example/pay').click();
await framed.getByRole('button', { name: 'Go' }).click();
await heading.waitFor();
assert.equal(context.pages().length, 1);
const link = mail.getByRole('row', { name: 'https://bank.example/pay' });
assert.ok((await link.innerText()).includes('https://far.example/pay'));
assert.ok((await link.innerText()).includes('shows another address'));
assert.ok(!text.includes('"subject"'), 'the raw arguments are folded away');
await mail.getByText('Exactly what is sent').click();
assert.ok((await mail.innerText()).includes('"subject": "I am late"'));
await mail.getByText('Exactly what is sent').click();
await mail.getByText('Always for these recipients…').click();
await shot('request');
await opensRequest('Calendar event create');
const meeting = page.getByRole('article', { name: 'Calendar event create' });
const event = await meeting.innerText();
for (const seen of ['Monday, 24 November 2031, 10:00', 'Europe/Berlin', 'Room 4', 'May stay away']) {
  assert.ok(event.includes(seen), `${seen} is not in ${event}`);
}
await meeting.getByText('Reject…').click();
await shot('answers');
await page.goto(list);

// By keyboard: past the header, to the content.
await page.keyboard.press('Tab');
assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the content');

// Another origin: not in a frame, not by a form; on the same machine too, where the browser sends the cookie.
const evil = createServer((_, answer) => answer.writeHead(200, { 'content-type': 'text/html' }).end(
  `<iframe src="${told.url}/console/approvals"></iframe><a href="${told.url}/console/grants">A link in a mail</a>
   <form method="post" action="${told.url}/console/approvals/${told.approval}">
   <input name="decision" value="approve_once"><button>Win a prize</button></form>`));
await new Promise(done => evil.listen(0, '127.0.0.1', done));
for (const host of ['127.0.0.1', 'localhost']) {
  const other = await context.newPage();
  await other.goto(`http://${host}:${evil.address().port}/`);
  const frame = other.frames()[1];
  assert.ok(!(await frame.content()).includes('Approvals'), 'the console is in a frame');
  await other.getByRole('button', { name: 'Win a prize' }).click();
  await other.waitForURL(`${told.url}/**`);
  assert.ok(!(await other.content()).includes('Approved by'));
  // A link reaches its target, although the browser does not send a strict cookie at first.
  await other.goto(`http://${host}:${evil.address().port}/`);
  await other.getByText('A link in a mail').click();
  await other.getByRole('heading', { name: 'Always allowed' }).waitFor();
  await other.close();
}
evil.close();
await page.reload();
assert.match(await page.title(), /^\(2\) Approvals/, 'nothing was approved from elsewhere');

// One approval, one rejection with its reason.
await opensRequest('Gmail send');
await mail.getByRole('button', { name: 'Approve once' }).click();
await page.getByRole('status').filter({ hasText: /Gmail send to .*: Sent\. Approved by you just now\./ }).waitFor();
await opensRequest('Calendar event create');
await meeting.getByText('Reject…').click();
await meeting.getByLabel('Reason').fill('Not on a Monday.');
await meeting.getByRole('button', { name: 'Reject', exact: true }).click();
await page.getByRole('status').filter({ hasText: 'Not on a Monday.' }).waitFor();
await page.getByText('No action waits for approval.').waitFor();
await page.getByRole('link', { name: 'Answered requests' }).click();
await page.getByText('Sent. Approved by you just now.').first().waitFor();
await page.getByText(/Rejected by you just now; not executed\. Reason: Not on a Monday\./).first().waitFor();
await shot('answered');
await page.goto(`${told.url}/console/approvals/${told.approval}`);
await page.getByText('Sent. Approved by you just now.').waitFor();
await page.getByRole('link', { name: 'Read the thread' }).click();
await page.getByText('That is all.').waitFor();
await shot('thread');
await page.getByRole('link', { name: 'Always allowed' }).click();
await page.getByText('There are no grants.').waitFor();
await page.getByRole('button', { name: 'Log out' }).click();
await page.getByRole('heading', { name: 'Log in' }).waitFor();
await page.goto(`${told.url}/console/grants`);
assert.equal(new URL(page.url()).pathname, '/console/login');
assert.deepEqual(problems, []);
await browser.close();
