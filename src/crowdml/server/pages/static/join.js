// Puts the invite into the command that takes it. The link is never sent: its secret stands behind the #.
const link = document.getElementById("link");
if (link && location.hash.includes("code=")) link.textContent = location.href;
