"""The `isthmus` command. The only package that imports typer; what a command needs is imported when it runs."""
